// chart renders a Helm chart the way Helm's own command does, turns YAML into JSON for the tests that look at it, and
// parses image references as the kubelet does.
//
//	chart render FOLDER [--values FILE]... [--reused]   an object {"objects": [...], "notes": "..."}
//	chart objects < YAML                                a list of the documents
//	chart image REFERENCE                               the reference with its registry
//
// Values are held against the chart's JSON schema, as `helm install`, `helm upgrade` and `helm lint` do. A refusal is
// on standard error, with exit code 1.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/distribution/reference"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("chart render FOLDER, chart objects, or chart image REFERENCE")
	}
	switch arguments[0] {
	case "render":
		return render(arguments[1:])
	case "objects":
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		objects, err := documents("standard input", string(text))
		if err != nil {
			return err
		}
		return print(objects)
	case "image":
		return image(arguments[1:])
	}
	return fmt.Errorf("unknown command %q", arguments[0])
}

// As in Kubernetes, pkg/util/parsers, ParseImageName: what it refuses is a pod with the reason InvalidImageName.
func image(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("chart image REFERENCE")
	}
	named, err := reference.ParseNormalizedNamed(arguments[0])
	if err != nil {
		return fmt.Errorf("couldn't parse image name %q: %w", arguments[0], err)
	}
	return print(named.String())
}

// As Helm's command merges files of values (pkg/cli/values, mergeMaps): a null stays, and removes the chart's default later.
func merged(before, more map[string]interface{}) map[string]interface{} {
	all := map[string]interface{}{}
	for key, value := range before {
		all[key] = value
	}
	for key, value := range more {
		if inner, ok := value.(map[string]interface{}); ok {
			if known, ok := all[key].(map[string]interface{}); ok {
				all[key] = merged(known, inner)
				continue
			}
		}
		all[key] = value
	}
	return all
}

type list []string

func (l *list) String() string         { return strings.Join(*l, ",") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

func render(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("which chart?")
	}
	var files list
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.Var(&files, "values", "a file of values; later ones win")
	reused := flags.Bool("reused", false, "the values are all there are, as helm upgrade --reuse-values does: no defaults of this chart")
	release := flags.String("release", "vsphere-cpi", "name of the release")
	namespace := flags.String("namespace", "kube-system", "namespace of the release")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	loaded, err := loader.Load(arguments[0])
	if err != nil {
		return err
	}
	if err := loaded.Validate(); err != nil {
		return err
	}
	values := map[string]interface{}{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		more := map[string]interface{}{}
		if err := yaml.UnmarshalStrict(text, &more); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		values = merged(values, more)
	}
	if *reused {
		loaded.Values = values
		values = map[string]interface{}{}
	}
	options := chartutil.ReleaseOptions{Name: *release, Namespace: *namespace, Revision: 1, IsInstall: !*reused, IsUpgrade: *reused}
	// Checks the schema.
	all, err := chartutil.ToRenderValues(loaded, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	return printRendered(loaded, all)
}

func printRendered(loaded *chart.Chart, values chartutil.Values) error {
	files, err := engine.Render(loaded, values)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	answer := struct {
		Objects []json.RawMessage `json:"objects"`
		Notes   string            `json:"notes"`
	}{Objects: []json.RawMessage{}}
	for _, name := range names {
		switch base := filepath.Base(name); {
		case base == "NOTES.txt":
			answer.Notes = files[name]
		case strings.HasPrefix(base, "_"):
		default:
			objects, err := documents(name, files[name])
			if err != nil {
				return err
			}
			answer.Objects = append(answer.Objects, objects...)
		}
	}
	return print(answer)
}

// The documents of a YAML text that are not empty. A key that stands twice is refused.
func documents(name, text string) ([]json.RawMessage, error) {
	objects := []json.RawMessage{}
	for number, document := range strings.Split("\n"+text, "\n---") {
		object, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w:\n%s", name, number, err, document)
		}
		if string(object) != "null" {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func print(answer any) error {
	return json.NewEncoder(os.Stdout).Encode(answer)
}
