package plugins

import (
	"reflect"
	"strings"

	"github.com/gpurun/gpurun/internal/nearest"
)

// explainConfig describes why a configuration cannot be read into v. For a setting that does
// not exist, it names those that do.
func explainConfig(err error, v any) string {
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
