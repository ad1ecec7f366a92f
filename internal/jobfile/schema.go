package jobfile

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Patterns of texts in the schema.
const (
	durationPattern = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$|^0$`
	sizePattern     = `^[0-9]+ *([KMGTkmgt][iI]?)?[bB]?$`
)

// object is a JSON object; its members are encoded in the order of their names.
type object map[string]any

// Schema returns the JSON Schema of job files with these settings.
func Schema(settings []Setting) []byte {
	properties := object{}
	var not []any
	for _, s := range settings {
		property := s.schema()
		property["description"] = s.Usage
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

// schema describes the values of a setting.
func (s Setting) schema() object {
	one := s.oneValue()
	switch s.Kind {
	case List:
		return object{"anyOf": []any{one, object{"type": "array", "items": one}}}
	case Document:
		return object{"type": []string{"object", "array", "string"}}
	case Steps:
		return object{"type": "array", "minItems": 1, "items": stepSchema()}
	}
	if s.Default != "" {
		one["default"] = s.defaultValue()
	}
	return one
}

// oneValue describes a value that is not a list.
func (s Setting) oneValue() object {
	if s.Closed {
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
	case Bool:
		one = object{"type": "boolean"}
	case Int:
		one = object{"type": "integer"}
	case Duration:
		return object{"anyOf": []any{object{"type": "string", "pattern": durationPattern}, object{"const": 0}}}
	case Size:
		return object{"anyOf": []any{object{"type": "string", "pattern": sizePattern}, object{"type": "integer", "minimum": 0}}}
	default:
		return object{"type": []string{"string", "number"}}
	}
	if len(s.Words) > 0 {
		return object{"anyOf": []any{one, object{"enum": s.Words}}}
	}
	return one
}

// defaultValue is the default in the type of the setting.
func (s Setting) defaultValue() any {
	if n, err := strconv.ParseInt(s.Default, 10, 64); err == nil && s.Kind == Int {
		return n
	}
	if b, err := strconv.ParseBool(s.Default); err == nil && s.Kind == Bool {
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
