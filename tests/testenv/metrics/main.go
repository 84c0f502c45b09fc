// Command metrics reads what the daemon exposes and what is asked of it with the readers that Prometheus itself has.
//
//	metrics exposition < TEXT    the families of an exposition, and what promlint says of them
//	metrics rules < YAML         the alerts of a PrometheusRule, checked as Prometheus does when it loads them
//	metrics expressions < JSON   the series and labels that each of a list of expressions asks for
//	metrics test RULES < YAML    the cases of a test file that the alerts of the PrometheusRule in the file RULES fail
//
// The answer is JSON. Input that cannot be read is reported on standard error, with exit code 1.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if isTest := len(os.Args) > 1 && os.Args[1] == "test"; isTest && len(os.Args) != 3 || !isTest && len(os.Args) != 2 {
		return errors.New("usage: metrics exposition | rules | expressions | test RULES")
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var answer any
	switch os.Args[1] {
	case "exposition":
		answer, err = readExposition(string(input))
	case "rules":
		answer, err = readRules(input)
	case "expressions":
		answer, err = readExpressions(input)
	case "test":
		answer, err = testRules(os.Args[2], input)
	default:
		err = fmt.Errorf("%q is nothing that can be read", os.Args[1])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

type exposition struct {
	Families []family `json:"families"`
	// What promlint says, as "name: text".
	Problems []string `json:"problems"`
}

type family struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Help   string   `json:"help"`
	Labels []string `json:"labels"`
	Series int      `json:"series"`
	// The upper bounds of a histogram's buckets.
	Bounds []float64 `json:"bounds"`
}

func readExposition(text string) (exposition, error) {
	var reader expfmt.TextParser
	families, err := reader.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return exposition{}, err
	}
	found := exposition{Families: []family{}, Problems: []string{}}
	for name, read := range families {
		names := []string{}
		bounds := []float64{}
		for _, metric := range read.Metric {
			for _, pair := range metric.Label {
				names = append(names, pair.GetName())
			}
			for _, bucket := range metric.GetHistogram().GetBucket() {
				bounds = append(bounds, bucket.GetUpperBound())
			}
		}
		slices.Sort(names)
		slices.Sort(bounds)
		// JSON has no infinity.
		bounds = slices.DeleteFunc(slices.Compact(bounds), func(bound float64) bool { return bound > 1e300 })
		found.Families = append(found.Families, family{
			Name:   name,
			Type:   strings.ToLower(read.GetType().String()),
			Help:   read.GetHelp(),
			Labels: slices.Compact(names),
			Series: len(read.Metric),
			Bounds: bounds,
		})
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		return exposition{}, err
	}
	for _, problem := range problems {
		found.Problems = append(found.Problems, problem.Metric+": "+problem.Text)
	}
	return found, nil
}

type rule struct {
	Alert       string            `json:"alert"`
	Expression  string            `json:"expression"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readRules(input []byte) ([]rule, error) {
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(input, &object); err != nil {
		return nil, err
	}
	spec, err := yaml.Marshal(&object.Spec)
	if err != nil {
		return nil, err
	}
	groups, problems := rulefmt.Parse(spec, false)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	rules := []rule{}
	for _, group := range groups.Groups {
		for _, read := range group.Rules {
			rules = append(rules, rule{
				Alert:       read.Alert.Value,
				Expression:  read.Expr.Value,
				For:         read.For.String(),
				Labels:      read.Labels,
				Annotations: read.Annotations,
			})
		}
	}
	return rules, nil
}

type expression struct {
	Expression string     `json:"expression"`
	Selectors  []selector `json:"selectors"`
	// The labels that each aggregation groups by, and each join is on.
	Groupings [][]string `json:"groupings"`
}

type selector struct {
	Series string `json:"series"`
	// Those that are compared, grouped by or joined on.
	Labels []string `json:"labels"`
}

func readExpressions(input []byte) ([]expression, error) {
	var texts []string
	if err := json.Unmarshal(input, &texts); err != nil {
		return nil, err
	}
	read := []expression{}
	for _, text := range texts {
		root, err := parser.ParseExpr(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		found := expression{Expression: text, Selectors: []selector{}, Groupings: [][]string{}}
		parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
			if vector, is := node.(*parser.VectorSelector); is {
				found.Selectors = append(found.Selectors, selected(vector, path))
			}
			if grouping, is := grouped(node); is {
				found.Groupings = append(found.Groupings, grouping)
			}
			return nil
		})
		read = append(read, found)
	}
	return read, nil
}

func selected(vector *parser.VectorSelector, path []parser.Node) selector {
	names := []string{}
	for _, matcher := range vector.LabelMatchers {
		if matcher.Name != labels.MetricName {
			names = append(names, matcher.Name)
		}
	}
	var inner parser.Node = vector
	for _, around := range slices.Backward(path) {
		grouping, _ := grouped(around)
		names = append(names, grouping...)
		// What `and` and `unless` have on their right is only joined: its labels go no further.
		operator, is := around.(*parser.BinaryExpr)
		if is && (operator.Op == parser.LAND || operator.Op == parser.LUNLESS) && operator.RHS == inner {
			break
		}
		inner = around
	}
	slices.Sort(names)
	return selector{Series: vector.Name, Labels: slices.Compact(names)}
}

// grouped returns the labels that an aggregation groups by or a join is on.
func grouped(node parser.Node) ([]string, bool) {
	switch node := node.(type) {
	case *parser.AggregateExpr:
		if !node.Without {
			return append([]string{}, node.Grouping...), true
		}
	case *parser.BinaryExpr:
		if node.VectorMatching != nil && node.VectorMatching.On {
			return append([]string{}, node.VectorMatching.MatchingLabels...), true
		}
	}
	return nil, false
}
