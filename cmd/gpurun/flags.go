package main

import (
	"cmp"
	"encoding/csv"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// value is the value of a setting as a flag. It is stored when it is set, so that what is not
// set has the zero value, which selects the default.
type value struct {
	setting spec.Setting
	to      any // the struct that it is stored in
	texts   []string
}

// addFlags adds settings as flags that are stored in a struct.
func addFlags(flags *pflag.FlagSet, to any, settings ...spec.Setting) {
	flags.SortFlags = false
	for _, s := range settings {
		if s.Place == spec.OnlyInFile {
			continue
		}
		flag := flags.VarPF(&value{setting: s, to: to}, s.Name, s.Short, s.Help)
		if flag.NoOptDefVal = s.Alone; s.Kind == spec.Bool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	switch v.setting.Kind {
	case spec.Bool:
		if on, err := strconv.ParseBool(text); err == nil {
			text = strconv.FormatBool(on)
		}
	case spec.Repeated:
		return v.replace(append(v.texts, text))
	case spec.List:
		texts, err := csv.NewReader(strings.NewReader(text)).Read()
		if err != nil && text != "" {
			return fault.NotAConfig.New("%s is not a list: %w", v.setting.Name, err)
		}
		return v.replace(append(v.texts, texts...))
	}
	return v.replace([]string{text})
}

// replace sets all texts of a list.
func (v *value) replace(texts []string) error {
	if len(texts) > 0 {
		if err := v.setting.Store(v.to, texts...); err != nil {
			return err
		}
	}
	v.texts = texts
	return nil
}

// String implements pflag.Value.
func (v *value) String() string {
	switch {
	case v.texts != nil:
		return strings.Join(v.texts, ",")
	case v.setting.Kind == spec.Bool:
		return cmp.Or(v.setting.Default, "false")
	}
	return v.setting.Default
}

// Type implements pflag.Value.
func (v *value) Type() string {
	names := map[spec.Kind]string{spec.Bool: "bool", spec.Int: "int", spec.Duration: "duration", spec.Size: "size", spec.List: "strings", spec.Repeated: "string"}
	name := cmp.Or(v.setting.Value, names[v.setting.Kind], "string")
	if len(v.setting.Words) > 0 && !v.setting.OneOf() {
		name += "|" + strings.Join(v.setting.Words, "|")
	}
	return name
}

// again returns the texts with which Set sets the same value.
func (v *value) again() []string {
	if v.setting.Kind != spec.List {
		return v.texts
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(v.texts) // it takes everything
	w.Flush()
	return []string{strings.TrimSuffix(b.String(), "\n")}
}

// settingOf returns the value of a flag that is a setting, nil for another.
func settingOf(flag *pflag.Flag) *value {
	if flag == nil {
		return nil
	}
	v, _ := flag.Value.(*value)
	return v
}

// textsOf returns what a setting is set to; nil if it is not set, or if there is no such flag.
func textsOf(flags *pflag.FlagSet, name string) []string {
	if v := settingOf(flags.Lookup(name)); v != nil {
		return v.texts
	}
	return nil
}

// textOf is textsOf for a setting with one value.
func textOf(flags *pflag.FlagSet, name string) string { return strings.Join(textsOf(flags, name), "") }

// joinDurations lets a duration follow a flag that may also stand alone: --keep-warm 10m.
func joinDurations(args []string) (joined []string) {
	for i := 0; i < len(args); i++ {
		if i+1 < len(args) && args[i] == "--keep-warm" {
			if _, err := time.ParseDuration(args[i+1]); err == nil {
				joined = append(joined, args[i]+"="+args[i+1])
				i++
				continue
			}
		}
		joined = append(joined, args[i])
	}
	return joined
}
