package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// compiledSchema returns the published schema.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	published, err := os.ReadFile(publishedSchema)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(published))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("job-file.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("job-file.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate checks a job file against the schema, as an editor does.
func validate(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return schema.Validate(value)
}

// TestSchemaAcceptsExamples: the examples and the job files of the documentation and of the
// scripts are valid, for gpurun and for the schema.
func TestSchemaAcceptsExamples(t *testing.T) {
	schema := compiledSchema(t)
	examples := make(map[string]string)
	for _, path := range []string{"../../docs/job-file.md", "../../README.md"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(data, -1) {
			if text := string(match[1]); regexp.MustCompile(`(?m)^[a-z]`).MatchString(text) {
				examples[fmt.Sprintf("%s, %d", path, i)] = text
			}
		}
	}
	paths, _ := filepath.Glob("../../examples/job*.yaml")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		examples[path] = string(data)
	}
	script, err := txtar.ParseFile("testdata/script/job_file.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range script.Files {
		if strings.HasSuffix(file.Name, ".yaml") && file.Name != "bad.yaml" && file.Name != "zero.yaml" {
			examples[file.Name] = string(file.Data)
		}
	}
	if len(examples) < 6 {
		t.Errorf("only %d examples", len(examples))
	}
	for name, text := range examples {
		if _, err := jobfile.Parse(name, []byte(text), jobSettings, checkSetting); err != nil {
			t.Error(err)
		}
		if err := validate(t, schema, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaAgreesWithParser: for each setting and many values, the schema accepts what
// gpurun accepts. What it accepts beyond that, only the flag itself can judge.
func TestSchemaAgreesWithParser(t *testing.T) {
	schema := compiledSchema(t)
	unchecked := func(spec.Setting, string) error { return nil }
	values := []string{
		"1", "0", "-1", "1.5", "true", "text", `"1"`, `""`, "30s", "1h30m", "64K", "32MiB", "1 GiB", "auto", "null", "stream", "index", "[]", "[a, b]", "[1]", "[true]", "[[a]]",
		"{}", "{a: 1}", "[{kernel: a}]", "[{kernel: a, config: {b: c}}]", "[{kernel: a, config: c.json}]", "[{config: {}}]", "[{kernel: ' '}]",
	}
	accepted := make(map[string]int)
	for _, s := range jobSettings {
		if s.Place == spec.NotInFile {
			continue
		}
		for _, value := range slices.Concat(values, s.Words, s.Try) {
			text := s.Name + ": " + value
			_, strict := jobfile.Parse("job.yaml", []byte(text), jobSettings, checkSetting)
			_, loose := jobfile.Parse("job.yaml", []byte(text), jobSettings, unchecked)
			err := validate(t, schema, text)
			if strict == nil && err != nil {
				t.Errorf("%s: gpurun accepts it, the schema does not: %v", text, err)
			}
			if loose != nil && err == nil {
				t.Errorf("%s: the schema accepts it, gpurun does not: %v", text, loose)
			}
			if strict == nil {
				accepted[s.Name]++
			}
		}
		if accepted[s.Name] == 0 {
			t.Errorf("no value for %s", s.Name)
		}
	}
	for _, text := range []string{"ouput: a", "kernel: a\nsteps: [b]", "kernel-config: {}\nsteps: [b]", "{}", "[a]", "a"} {
		if validate(t, schema, text) == nil {
			t.Errorf("the schema accepts %q", text)
		}
	}
}

// TestSchemaDescribesEverySetting: an editor shows what each setting means.
func TestSchemaDescribesEverySetting(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal(jobfile.Schema(jobSettings), &schema); err != nil {
		t.Fatal(err)
	}
	for _, s := range jobSettings {
		if s.Place != spec.NotInFile && schema.Properties[s.Name].Description == "" {
			t.Errorf("%s has no description", s.Name)
		}
	}
}
