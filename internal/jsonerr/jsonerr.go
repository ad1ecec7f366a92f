// Package jsonerr explains in the terms of JSON, not of Go, why a value cannot be decoded.
package jsonerr

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/gpurun/gpurun/internal/nearest"
)

// Explain describes why JSON cannot be decoded into v, which is nil if unknown. For a member
// that does not exist, it names those that do; members is what users call them.
func Explain(err error, v any, members string) string {
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
	var names []string
	if unknown && v != nil {
		names = membersOf(reflect.TypeOf(v))
	}
	if len(names) == 0 {
		return text
	}
	return text + nearest.Hint(strings.Trim(name, `"`), names, 3, "; the "+members+" are "+strings.Join(names, ", "))
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

// membersOf returns the members that encoding/json reads into a value of this type, in their
// order.
func membersOf(of reflect.Type) (names []string) {
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
			names = append(names, membersOf(field.Type)...)
		}
	}
	return names
}
