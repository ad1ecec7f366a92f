// Package spec decides, once, everything that follows from the settings of a job and from the
// names of its files: [Resolve] makes a [Spec] of a [Config]. What only the input or the kernel
// can tell is not here. A Spec is not modified; it lies in job.json, so that a resume, a retry
// and a status have the decisions of the job itself.
//
// A setting is a row of Settings; flags, environment variables, job files, completion and the
// reference are made from it.
package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

// Kind is which values a setting takes.
type Kind int

const (
	// Text is any text.
	Text Kind = iota
	// Bool is true or false.
	Bool
	// Int is a whole number.
	Int
	// Duration is a time with its unit, such as 30s.
	Duration
	// Size is a number of bytes, such as 4096 or 32MiB.
	Size
	// List is several texts; commas separate them.
	List
	// Repeated is several texts, each set on its own.
	Repeated
	// Document is JSON, or the name of a file with it.
	Document
	// Steps is a list of kernels, each with its configuration.
	Steps
)

// Place is where a setting can be set.
type Place int

const (
	// Anywhere: as a flag, in the environment, and in a job file.
	Anywhere Place = iota
	// NotInFile: not in a job file.
	NotInFile
	// OnlyInFile: only in a job file.
	OnlyInFile
)

// Setting is something about a job that people can set.
type Setting struct {
	// Name is what people call it: batch-size. Short is a letter for it, "" for none.
	Name, Short string
	// Group is the heading under which it is listed.
	Group string
	Kind  Kind
	Place Place
	// Field is where it is stored: Batching.Size is a field of a field of Config. "" means that
	// the program stores it itself.
	Field string
	// Default is the value if it is not set; "" if there is none, or if it depends on the job.
	Default string
	// Unset is the value that one means which is not set, although there is no Default.
	Unset string
	// Least is the smallest number, in nanoseconds or bytes for a time or a size. A text must not
	// be empty if Least is 1.
	Least int64
	// Zero, unless 0, is stored for an explicit 0: the zero value of a field means its default.
	Zero int64
	// Words are accepted in addition to the values of the kind; a text must be one of them.
	// Stored in a bool, the last word is true. The word auto is stored as Auto, or as
	// an empty text; or AutoField, if set, is the bool that it sets.
	Words     []string
	AutoField string
	// Try are values worth suggesting.
	Try []string
	// Alone is the value of a flag that is given without one; "" if it needs one.
	Alone string
	// Value names the value in the help: FILE. Endings are how the names of such files end.
	Value   string
	Endings []string
	// Path returns a value with the path in it replaced by move(path); nil if it has none.
	Path func(value string, move func(string) string) string
	// Help describes the setting in one line.
	Help string
	// Excludes are settings that a job file with this one must not contain. Instead is what a
	// job file has in place of a setting that is not for files.
	Excludes []string
	Instead  string
	// Common settings are listed first: most jobs need no others.
	Common bool
	// Shapes: results depend on it.
	Shapes bool
	// TableField holds the setting instead of Field if the output is a table: see PlaceColumns.
	TableField string
}

// Auto is how a number is stored that gpurun chooses; auto is how people write it.
const (
	Auto = -1
	auto = "auto"
)

// settable is a type of field that reads its own text.
type settable interface{ Set(text string) error }

// Numeric reports whether the setting is a number of something.
func (s Setting) Numeric() bool { return s.Kind == Int || s.Kind == Duration || s.Kind == Size }

// OneOf reports whether the setting takes its Words and nothing else.
func (s Setting) OneOf() bool { return s.Kind == Text && len(s.Words) > 0 }

// IsList reports whether the setting takes several values.
func (s Setting) IsList() bool { return s.Kind == List || s.Kind == Repeated }

// wrong is the error of a value that the setting does not take.
func (s Setting) wrong(wanted, value string) error {
	hint := nearest.Hint(value, s.Words, 2, "")
	if !bare.MatchString(value) {
		value = strconv.Quote(value)
	}
	return fault.BadValue.New("%s must be %s, not %s%s", s.Name, wanted, value, hint).Set(s.Name)
}

// bare matches a value that needs no quotes in a message.
var bare = regexp.MustCompile(`^[\w.:%=+-]+$`)

// wanted describes the values of each kind.
var wanted = map[Kind]string{
	Bool: "true or false", Int: "a whole number", Duration: "a time with its unit, such as 30s or 5m", Size: "a size such as 4096, 64K, 32MiB or 1G",
	Document: "a mapping, or the name of a JSON file", Steps: "a list of kernels",
}

// Wanted describes the values that the setting takes.
func (s Setting) Wanted() string {
	if s.OneOf() {
		return anyOf(s.Words...)
	}
	return anyOf(append([]string{cmp.Or(wanted[s.Kind], "text")}, s.Words...)...)
}

// anyOf joins alternatives: a, b or c.
func anyOf(words ...string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Check returns why the setting does not take a value, nil if it does.
func (s Setting) Check(text string) error {
	switch {
	case slices.Contains(s.Words, text):
		return nil
	case s.OneOf():
		return s.wrong(s.Wanted(), text)
	case s.Kind == Bool:
		if _, err := strconv.ParseBool(text); err != nil {
			return s.wrong(s.Wanted(), text)
		}
	case s.Kind == Text && s.Least > 0 && strings.TrimSpace(text) == "":
		return fault.BadValue.New("%s is empty", s.Name).Set(s.Name)
	case s.Numeric():
		switch n, ok := s.number(text); {
		case !ok:
			return s.wrong(s.Wanted(), text)
		case n >= s.Least:
		case s.Kind == Duration && s.Least == 1:
			return s.wrong("more than 0s", text)
		default:
			return s.wrong(anyOf(append([]string{"at least " + s.Format(s.Least)}, s.Words...)...), text)
		}
	}
	return nil
}

// number parses a number.
func (s Setting) number(text string) (n int64, ok bool) {
	var err error
	switch s.Kind {
	case Duration:
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	case Size:
		digits := strings.TrimRight(text, "KMGTiBkmgtb")
		unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(digits):]), "B"), "I")
		shift := 10 * strings.Index(" KMGT", unit)
		if unit == "" {
			shift = 0
		}
		n, err = strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if shift < 0 || len(unit) > 1 || n > (1<<62)>>shift {
			return 0, false
		}
		n <<= shift
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	return n, err == nil
}

// Format returns a number as people write it: 30s, 32MiB.
func (s Setting) Format(n int64) string {
	if s.Kind == Duration {
		return time.Duration(n).String()
	}
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (30 - 10*i); s.Kind == Size && n >= size && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// Store sets the setting's field of a struct to values, several only of a list.
func (s Setting) Store(to any, values ...string) error {
	if !s.IsList() {
		values = values[len(values)-1:]
	}
	for _, text := range values {
		if err := s.Check(text); err != nil {
			return err
		}
	}
	if s.Field == "" {
		return nil
	}
	field := s.field(to, s.Field)
	if s.AutoField != "" {
		s.field(to, s.AutoField).SetBool(values[0] == auto)
	}
	if !s.IsList() {
		return s.store(field, values[0])
	}
	list := reflect.MakeSlice(field.Type(), len(values), len(values))
	for i, text := range values {
		if err := s.store(list.Index(i), text); err != nil {
			return err
		}
	}
	field.Set(list)
	return nil
}

// store sets one value that was checked.
func (s Setting) store(field reflect.Value, text string) error {
	if own, ok := field.Addr().Interface().(settable); ok {
		if err := own.Set(text); err != nil {
			return fault.BadValue.New("%s %q: %w", s.Name, text, err).Set(s.Name)
		}
		return nil
	}
	isAuto := text == auto && slices.Contains(s.Words, auto)
	switch {
	case isAuto && (s.AutoField != "" || field.Kind() == reflect.String):
		field.SetZero()
	case field.Kind() == reflect.String:
		field.SetString(text)
	case field.Kind() == reflect.Bool && s.OneOf():
		field.SetBool(text == s.Words[len(s.Words)-1])
	case field.Kind() == reflect.Bool:
		on, _ := strconv.ParseBool(text)
		field.SetBool(on)
	case isAuto:
		field.SetInt(Auto)
	default:
		n, _ := s.number(text)
		if n == 0 {
			n = s.Zero
		}
		field.SetInt(n)
	}
	return nil
}

// field returns a field of a struct.
func (s Setting) field(of any, path string) reflect.Value {
	v := reflect.ValueOf(of).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if v = v.FieldByName(name); !v.IsValid() {
			panic(fmt.Sprintf("%T has no field %s for the setting %s", of, path, s.Name))
		}
	}
	return v
}

// Check rejects values that no user could have set, in the fields of a struct to which config
// points. A zero value is the default.
func Check(config any, settings ...Setting) error {
	for _, s := range settings {
		if s.Field == "" {
			continue
		}
		field := s.field(config, s.Field)
		var err error
		switch {
		case field.IsZero():
		case field.Kind() == reflect.String && s.OneOf():
			err = s.Check(field.String())
		case field.CanInt() && s.Numeric() && !(field.Int() < 0 && (s.Zero < 0 || field.Int() == Auto && s.AutoField == "" && len(s.Words) > 0)):
			err = s.Check(s.Format(field.Int()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fill sets fields of a struct, to which config points, that have the zero value to their
// defaults.
func Fill(config any, settings ...Setting) {
	for _, s := range settings {
		if s.Field == "" || s.Default == "" {
			continue
		}
		if field := s.field(config, s.Field); field.IsZero() || field.Kind() == reflect.String && field.String() == s.Default {
			_ = s.Store(config, s.Default) // a default is valid
		}
	}
}

// Find returns the setting of a job with this name.
func Find(name string) (s Setting, found bool) {
	at := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
	if at >= 0 {
		s = Settings[at]
	}
	return s, at >= 0
}
