package plugins

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/gpurun/gpurun/internal/nearest"
)

// explainConfig describes why a configuration cannot be read into v. For a setting that does
// not exist, it names those that do.
func explainConfig(err error, v any) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		name, found := cmp.Or(wrong.Field, "it"), wrong.Value
		if kind, number, ok := strings.Cut(found, " "); ok && kind == "number" { // 2.5 for a whole number
			found = number
		} else {
			found = article(found)
		}
		return name + " must be " + wanted(wrong.Type) + ", not " + found
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	name, unknown := strings.CutPrefix(text, "unknown field ")
	names := settingsOf(reflect.TypeOf(v))
	if !unknown || len(names) == 0 {
		return text
	}
	if near := nearest.Of(strings.Trim(name, `"`), names, 3); near != "" {
		return text + "; did you mean " + near + "?"
	}
	return text + "; the settings are " + strings.Join(names, ", ")
}

// wanted names what JSON has for a type.
func wanted(of reflect.Type) string {
	switch of.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a whole number"
}

func article(noun string) string {
	if strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// settingsOf returns the members that encoding/json reads into a value of this type, in their
// order.
func settingsOf(of reflect.Type) (names []string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return nil
	}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || field.Anonymous && name == "" || name == "-":
			continue
		case name == "":
			name = field.Name
		}
		names = append(names, name)
		if field.Type.Kind() == reflect.Struct {
			names = append(names, settingsOf(field.Type)...)
		}
	}
	return names
}
