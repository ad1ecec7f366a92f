package main

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestJobFileKeepsSettings: a job file written for an older version still works. Settings
// keep their names and types; testdata/job-file-1.schema.json has those of the first version.
func TestJobFileKeepsSettings(t *testing.T) {
	type schema struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	var before, now schema
	older, err := os.ReadFile("testdata/job-file-1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(older, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(jobSchema(), &now); err != nil {
		t.Fatal(err)
	}
	if len(before.Properties) < 50 {
		t.Fatalf("the older schema has %d settings", len(before.Properties))
	}
	for name, old := range before.Properties {
		setting, there := now.Properties[name]
		if !there {
			t.Errorf("%s is gone: keep it as a hidden alias", name)
			continue
		}
		if !reflect.DeepEqual(setting["type"], old["type"]) {
			t.Errorf("%s was %v and is now %v", name, old["type"], setting["type"])
		}
	}
}
