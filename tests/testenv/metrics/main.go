// Command metrics reads what the daemon exposes and what is asked of it with the readers that Prometheus itself has.
//
//	metrics exposition < TEXT    the families of an exposition, and what promlint says of them
//	metrics rules < YAML         the alerts of a PrometheusRule, checked as Prometheus does when it loads them
//	metrics expressions < JSON   the series and labels that each of a list of expressions asks for
//
// The answer is JSON. What cannot be read is told on standard error, with exit code 1.
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
	if len(os.Args) != 2 {
		return errors.New("say what to read: exposition, rules or expressions")
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
		found := expression{Expression: text, Selectors: []selector{}}
		parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
			if vector, is := node.(*parser.VectorSelector); is {
				found.Selectors = append(found.Selectors, selected(vector, path))
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
	for _, around := range path {
		switch around := around.(type) {
		case *parser.AggregateExpr:
			if !around.Without {
				names = append(names, around.Grouping...)
			}
		case *parser.BinaryExpr:
			if around.VectorMatching != nil && around.VectorMatching.On {
				names = append(names, around.VectorMatching.MatchingLabels...)
			}
		}
	}
	slices.Sort(names)
	return selector{Series: vector.Name, Labels: slices.Compact(names)}
}
