package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"gopkg.in/yaml.v3"
)

// The first evaluation. Times of a case count from it, and `time()` is small but not zero, so that "a day ago" exists.
var start = time.Unix(100*86400, 0).UTC()

// suite is a file of cases in the format of `promtool test rules`, with the keys TargetLabels, Background and Quiet
// added; annotations that a case does not name are not compared.
type suite struct {
	// Labels of every series that does not name them itself: those that Prometheus adds to what it scrapes.
	TargetLabels map[string]string `yaml:"target_labels"`
	// Series of every case that has none of that name.
	Background []inputSeries `yaml:"background"`
	Tests      []testCase    `yaml:"tests"`
}

type testCase struct {
	Name string `yaml:"name"`
	// Between two samples, and between two evaluations.
	Interval     model.Duration `yaml:"interval"`
	Series       []inputSeries  `yaml:"input_series"`
	Expectations []expectation  `yaml:"alert_rule_test"`
	// Severities of which no alert fires at any time of the case.
	Quiet []string `yaml:"quiet"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type expectation struct {
	At     model.Duration `yaml:"eval_time"`
	Alert  string         `yaml:"alertname"`
	Alerts []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

type verdict struct {
	// Expectations that are not met, and cases that cannot be evaluated.
	Problems []string `json:"problems"`
	// Alerts that some case expects to fire, and those that some case expects not to.
	Firing []string `json:"firing"`
	Silent []string `json:"silent"`
}

// testRules evaluates the rules of a file over each case.
func testRules(file string, input []byte) (verdict, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return verdict{}, err
	}
	rules, err := readRules(content)
	if err != nil {
		return verdict{}, err
	}
	var suite suite
	decoder := yaml.NewDecoder(bytes.NewReader(input))
	decoder.KnownFields(true)
	if err := decoder.Decode(&suite); err != nil {
		return verdict{}, err
	}
	firing, silent := map[string]bool{}, map[string]bool{}
	found := verdict{Problems: []string{}}
	for _, test := range suite.Tests {
		for _, expected := range test.Expectations {
			if len(expected.Alerts) > 0 {
				firing[expected.Alert] = true
			} else {
				silent[expected.Alert] = true
			}
		}
		problems, err := test.run(rules, suite)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, problem := range problems {
			found.Problems = append(found.Problems, test.Name+": "+problem)
		}
	}
	found.Firing, found.Silent = slices.Sorted(maps.Keys(firing)), slices.Sorted(maps.Keys(silent))
	return found, nil
}

// run returns the expectations that are not met.
func (test testCase) run(rules []rule, suite suite) ([]string, error) {
	interval := time.Duration(test.Interval)
	if interval == 0 {
		interval = time.Minute
	}
	series, err := load(test.Series, interval, suite.TargetLabels)
	if err != nil {
		return nil, err
	}
	background, err := load(suite.Background, interval, suite.TargetLabels)
	if err != nil {
		return nil, err
	}
	for _, one := range background {
		name := labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, one.Labels().Get(labels.MetricName))
		if len(series.find(name)) == 0 {
			series = append(series, one)
		}
	}
	evaluated := []*alerting{}
	for _, rule := range rules {
		alerting, err := newAlerting(rule)
		if err != nil {
			return nil, err
		}
		evaluated = append(evaluated, alerting)
	}
	problems := []string{}
	end := time.Duration(0)
	for _, expected := range test.Expectations {
		end = max(end, time.Duration(expected.At))
		if time.Duration(expected.At)%interval != 0 {
			problems = append(problems, fmt.Sprintf("%s at %s: no evaluation then", expected.Alert, expected.At))
		}
		// That nothing fires says something only where the alert has something to look at.
		reads := func(alerting *alerting) bool { return alerting.Alert == expected.Alert && alerting.reads(series) }
		if !slices.ContainsFunc(evaluated, reads) {
			problems = append(problems, fmt.Sprintf("%s: no such alert, or no series that it reads", expected.Alert))
		}
	}
	for since := time.Duration(0); since <= end; since += interval {
		for _, alerting := range evaluated {
			if err := alerting.evaluate(series, start.Add(since)); err != nil {
				return problems, fmt.Errorf("%s after %s: %w", alerting.Alert, since, err)
			}
		}
		problems = append(problems, test.compare(evaluated, since)...)
	}
	return problems, nil
}

// load parses series.
func load(inputs []inputSeries, interval time.Duration, targetLabels map[string]string) (stored, error) {
	loaded := stored{}
	for _, input := range inputs {
		own, values, err := parser.ParseSeriesDesc(input.Series + " " + input.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", input.Series, err)
		}
		builder := labels.NewBuilder(own)
		for name, value := range targetLabels {
			if !own.Has(name) {
				builder.Set(name, value)
			}
		}
		samples := []chunks.Sample{}
		for i, value := range values {
			if !value.Omitted {
				at := start.Add(time.Duration(i) * interval)
				samples = append(samples, sample{at.UnixMilli(), value.Value})
			}
		}
		loaded = append(loaded, storage.NewListSeries(builder.Labels(), samples))
	}
	return loaded, nil
}

// compare returns what fires at a time of the case and should not, and what should and does not.
func (test testCase) compare(evaluated []*alerting, since time.Duration) []string {
	problems := []string{}
	for _, alerting := range evaluated {
		for _, alert := range alerting.active {
			severity := alert.labels.Get("severity")
			if alert.state == started && slices.Contains(test.Quiet, severity) {
				problems = append(problems, fmt.Sprintf("%s fires after %s", alert.labels, since))
			}
		}
	}
	for _, expected := range test.Expectations {
		if time.Duration(expected.At) != since {
			continue
		}
		got, unexpected := map[string]labels.Labels{}, []string{}
		for _, alerting := range evaluated {
			for key, alert := range alerting.active {
				if alert.state != pending && alerting.Alert == expected.Alert {
					got[key] = alert.annotations
				}
			}
		}
		for _, alert := range expected.Alerts {
			builder := labels.NewBuilder(labels.FromMap(alert.Labels))
			key := builder.Set(labels.AlertName, expected.Alert).Labels().String()
			annotations, fires := got[key]
			if !fires {
				unexpected = append(unexpected, "expected "+key)
			}
			for name, text := range alert.Annotations {
				if fires && annotations.Get(name) != text {
					unexpected = append(unexpected, fmt.Sprintf("its %s is %q, expected %q", name, annotations.Get(name), text))
				}
			}
			delete(got, key)
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			unexpected = append(unexpected, "not expected "+key)
		}
		for _, text := range unexpected {
			problems = append(problems, fmt.Sprintf("%s at %s: %s", expected.Alert, expected.At, text))
		}
	}
	return problems
}

// engine has the limits of a Prometheus with its default settings.
var engine = promql.NewEngine(promql.EngineOpts{
	MaxSamples:           50_000_000,
	Timeout:              2 * time.Minute,
	LookbackDelta:        5 * time.Minute,
	EnableAtModifier:     true,
	EnableNegativeOffset: true,
})

// alerting is a rule with its alerts. Prometheus's own type for it is in a package that is built with the clients of
// several clouds, for its service discovery; what it adds to the engine is the little that follows.
type alerting struct {
	rule
	expr parser.Expr
	hold time.Duration
	// Pending and firing alerts, by their labels.
	active map[string]alert
}

type alert struct {
	labels, annotations labels.Labels
	since               time.Time
	state               state
}

type state int

const (
	pending state = iota
	// Firing for the first time.
	started
	firing
)

func newAlerting(rule rule) (*alerting, error) {
	expr, err := parser.ParseExpr(rule.Expression)
	if err != nil {
		return nil, err
	}
	hold, err := model.ParseDuration(rule.For)
	if err != nil {
		return nil, err
	}
	return &alerting{rule: rule, expr: expr, hold: time.Duration(hold)}, nil
}

// reads says whether the rule has a selector of one of these names.
func (alerting *alerting) reads(series stored) bool {
	return slices.ContainsFunc(parser.ExtractSelectors(alerting.expr), func(matchers []*labels.Matcher) bool {
		isName := func(matcher *labels.Matcher) bool { return matcher.Name == labels.MetricName }
		named := slices.IndexFunc(matchers, isName)
		return named >= 0 && len(series.find(matchers[named])) > 0
	})
}

// evaluate finds out which alerts are active at a time, and which of them fire.
func (alerting *alerting) evaluate(series stored, at time.Time) error {
	vector, err := query(series)(context.Background(), alerting.Expression, at)
	if err != nil {
		return err
	}
	active := map[string]alert{}
	for _, sample := range vector {
		expand := func(text string) (string, error) {
			data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
			text = "{{$labels := .Labels}}{{$value := .Value}}" + text
			now := model.TimeFromUnixNano(at.UnixNano())
			return template.NewTemplateExpander(
				context.Background(), text, alerting.Alert, data, now, query(series), &url.URL{}, nil).Expand()
		}
		own, annotations := labels.NewBuilder(sample.Metric), labels.NewBuilder(labels.EmptyLabels())
		own.Del(labels.MetricName).Set(labels.AlertName, alerting.Alert)
		for builder, texts := range map[*labels.Builder]map[string]string{own: alerting.Labels, annotations: alerting.Annotations} {
			for name, text := range texts {
				value, err := expand(text)
				if err != nil {
					return err
				}
				builder.Set(name, value)
			}
		}
		key := own.Labels().String()
		if _, exists := active[key]; exists {
			return fmt.Errorf("two alerts %s", key)
		}
		next := alert{own.Labels(), annotations.Labels(), at, pending}
		before, exists := alerting.active[key]
		if exists {
			next.since = before.since
		}
		if at.Sub(next.since) >= alerting.hold {
			next.state = started
			if before.state != pending {
				next.state = firing
			}
		}
		active[key] = next
	}
	alerting.active = active
	return nil
}

func query(series stored) template.QueryFunc {
	return func(ctx context.Context, expression string, at time.Time) (promql.Vector, error) {
		query, err := engine.NewInstantQuery(ctx, series, nil, expression, at)
		if err != nil {
			return nil, err
		}
		defer query.Close()
		vector, err := query.Exec(ctx).Vector()
		// The samples go back to the engine when the query is closed.
		return slices.Clone(vector), err
	}
}

// stored is what the engine reads.
type stored []storage.Series

func (series stored) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &found{series: series.find(matchers...)}
		},
	}, nil
}

func (series stored) find(matchers ...*labels.Matcher) []storage.Series {
	matching := []storage.Series{}
	for _, one := range series {
		differs := func(matcher *labels.Matcher) bool { return !matcher.Matches(one.Labels().Get(matcher.Name)) }
		if !slices.ContainsFunc(matchers, differs) {
			matching = append(matching, one)
		}
	}
	return matching
}

// sample is one value of a series.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// found walks over what was selected.
type found struct {
	series []storage.Series
	next   int
}

func (f *found) Next() bool {
	f.next++
	return f.next <= len(f.series)
}
func (f *found) At() storage.Series                { return f.series[f.next-1] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }
