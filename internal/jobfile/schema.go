package jobfile

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Patterns of texts in the schema.
const (
	durationPattern = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$|^0$`
	sizePattern     = `^[0-9]+ *([KMGTkmgt][iI]?)?[bB]?$`
)

// object is a JSON object; its members are encoded in the order of their names.
type object map[string]any

// Schema returns the JSON Schema of job files with these settings.
func Schema(settings []spec.Setting) []byte {
	properties := object{}
	var not []any
	for _, s := range settings {
		if s.Place == spec.NotInFile {
			continue
		}
		property := schemaOf(s)
		property["description"] = s.Help
		properties[s.Name] = property
		for _, other := range s.Excludes {
			not = append(not, object{"not": object{"required": []string{other, s.Name}}})
		}
	}
	root := object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "gpurun job file",
		"type":                 "object",
		"additionalProperties": false,
		"minProperties":        1,
		"properties":           properties,
	}
	if not != nil {
		root["allOf"] = not
	}
	encoded, _ := json.MarshalIndent(root, "", "  ") // maps of strings can be encoded
	return append(encoded, '\n')
}

// schemaOf describes the values of a setting.
func schemaOf(s spec.Setting) object {
	one := oneValue(s)
	switch s.Kind {
	case spec.List, spec.Repeated:
		return object{"anyOf": []any{one, object{"type": "array", "items": one}}}
	case spec.Document:
		return object{"type": []string{"object", "array", "string"}}
	case spec.Steps:
		return object{"type": "array", "minItems": 1, "items": stepSchema()}
	}
	if s.Default != "" {
		one["default"] = defaultValue(s)
	}
	return one
}

// oneValue describes a value that is not a list.
func oneValue(s spec.Setting) object {
	if s.OneOf() {
		words := make([]any, 0, len(s.Words)+1)
		for _, word := range s.Words {
			words = append(words, word)
		}
		if slices.Contains(s.Words, "null") {
			words = append(words, nil) // how YAML reads it without quotes
		}
		return object{"enum": words}
	}
	var one object
	switch s.Kind {
	case spec.Bool:
		one = object{"type": "boolean"}
	case spec.Int:
		one = object{"type": "integer", "minimum": s.Least}
	case spec.Duration:
		return object{"anyOf": []any{object{"type": "string", "pattern": durationPattern}, object{"const": 0}}}
	case spec.Size:
		return object{"anyOf": []any{object{"type": "string", "pattern": sizePattern}, object{"type": "integer", "minimum": s.Least}}}
	default:
		return object{"type": []string{"string", "number"}}
	}
	if len(s.Words) > 0 {
		return object{"anyOf": []any{one, object{"enum": s.Words}}}
	}
	return one
}

// defaultValue is the default in the type of the setting.
func defaultValue(s spec.Setting) any {
	if n, err := strconv.ParseInt(s.Default, 10, 64); err == nil && s.Kind == spec.Int {
		return n
	}
	if b, err := strconv.ParseBool(s.Default); err == nil && s.Kind == spec.Bool {
		return b
	}
	return s.Default
}

func stepSchema() object {
	kernel := object{"type": "string", "pattern": `\S`}
	return object{"anyOf": []any{kernel, object{
		"type": "object", "additionalProperties": false, "required": []string{StepKernel},
		"properties": object{StepKernel: kernel, StepConfig: object{"type": []string{"object", "array", "string"}}},
	}}}
}
