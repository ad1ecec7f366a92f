package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator"
)

// jobFile is the job file of a command, and where every setting comes from.
type jobFile struct {
	name    string
	origins origins
	dir     string // paths in the file are relative to it; "" for the current folder
	// stepConfigs is how many of the steps' configurations come from the file.
	stepConfigs int
}

func (j *jobFile) register(flags *pflag.FlagSet) {
	flags.StringVarP(&j.name, "job-file", "f", "", "read settings from this YAML `FILE`; flags and GPURUN_* take precedence (gpurun help job-file)")
}

// settle fills in what is missing on the command line: from the environment, then from the
// job file. It returns the arguments, those of the job file if there are none, and reports
// all mistakes together.
func (f *runFlags) settle(cmd *cobra.Command, args []string, setting string) ([]string, error) {
	f.job.origins = noteOrigins(cmd.Flags())
	mistakes := f.job.origins.fromEnvironment(cmd)
	if len(args) > 0 {
		f.job.origins[setting] = origin{text: "argument"}
	}
	if f.job.name != "" {
		file, err := readJobFile(f.job.name)
		var found jobfile.Mistakes
		switch {
		case errors.As(err, &found):
			mistakes = append(mistakes, found...)
		case err != nil:
			return nil, err
		default:
			args = f.take(cmd, file, args, setting)
		}
	}
	if len(mistakes) > 0 {
		return nil, &usageError{mistakes}
	}
	if f.job.name == "-" && (slices.Contains(args, "-") || slices.Contains(args, "/dev/stdin")) {
		return nil, usagef("standard input is the job file (-f -) and cannot be the input, too")
	}
	return args, cmd.Args(cmd, args) // the job file may have named too many
}

// reads lists the files that the job depends on, with the job file.
func (f *runFlags) reads(c orchestrator.Config) []orchestrator.NamedFile {
	files := f.jobFlags.reads(c)
	if f.job.name != "" && f.job.name != "-" {
		files = append(files, orchestrator.NamedFile{Name: "job file", Path: f.job.name})
	}
	return files
}

// readJobFile reads a job file, or standard input if its name is -.
func readJobFile(name string) (*jobfile.File, error) {
	shown, in := name, io.Reader(os.Stdin)
	if name == "-" {
		shown = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, usagef("job file: %w", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, jobfile.MaxBytes+1))
	if err != nil {
		return nil, usagef("read job file: %w", err)
	}
	return jobfile.Parse(shown, data, jobSettings())
}

// take sets the flags that neither the command line nor the environment has set. A command
// without some of the flags ignores their settings.
func (f *runFlags) take(cmd *cobra.Command, file *jobfile.File, args []string, setting string) []string {
	dir := baseDir(f.job.name, file)
	f.job.dir = dir
	flags := cmd.Flags()
	for name, v := range file.Values {
		flag := flags.Lookup(name)
		switch {
		case name == setting && len(args) == 0:
			for _, text := range v.Texts {
				args = append(args, inputPath(dir, text))
			}
		case name == stepsSetting && len(f.steps) == 0:
			f.takeSteps(v.Steps, dir)
		case flag != nil && !flag.Changed && name != setting:
			setFlag(flags, flag, dir, v)
		default:
			continue
		}
		f.job.origins[name] = origin{file: file.Name, line: v.Line}
	}
	return args
}

// takeSteps takes the steps of a job file. Their configurations come before those of the
// command line, which replace them.
func (f *runFlags) takeSteps(steps []jobfile.Step, dir string) {
	var configs []string
	for i, step := range steps {
		f.steps = append(f.steps, step.Kernel)
		switch config := step.Config; {
		case config.JSON != nil:
			configs = append(configs, fmt.Sprintf("%d=%s", i+1, config.JSON))
		case config.Texts != nil:
			configs = append(configs, fmt.Sprintf("%d=%s", i+1, flagPath("kernel-config", dir, config.Texts[0])))
		}
	}
	f.job.stepConfigs = len(configs)
	f.stepConfigs = append(configs, f.stepConfigs...)
}

// setFlag sets a flag to a value that has been checked.
func setFlag(flags *pflag.FlagSet, flag *pflag.Flag, dir string, v jobfile.Value) {
	texts := v.Texts
	if v.JSON != nil {
		texts = []string{string(v.JSON)}
	} else if slices.Contains(pathFlags, flag.Name) {
		texts = slices.Clone(texts)
		for i, text := range texts {
			texts[i] = flagPath(flag.Name, dir, text)
		}
	}
	list, isList := flag.Value.(pflag.SliceValue)
	if v.IsList && isList {
		_ = list.Replace(texts) // a list of texts takes every text
		flag.Changed = true
		return
	}
	_ = flags.Set(flag.Name, texts[0]) // was checked when the file was read
}

// baseDir returns the folder that the paths in a job file are relative to; "" for the
// current one.
func baseDir(name string, file *jobfile.File) string {
	dir := ""
	if name != "-" {
		dir = filepath.Dir(name)
	}
	if v, ok := file.Values[dirSetting]; ok {
		dir = relativeTo(dir, v.Texts[0])
	}
	if dir == "." {
		return ""
	}
	return dir
}

// relativeTo returns a path that is relative to dir. It keeps a slash at the end, which
// makes an output a folder.
func relativeTo(dir, path string) string {
	if dir == "" || path == "" || path == "-" || filepath.IsAbs(path) {
		return path
	}
	joined := filepath.Join(dir, path)
	if strings.HasSuffix(path, "/") {
		joined += "/"
	}
	return joined
}

// inputPath is relativeTo for an input, which may be a file with a list of inputs.
func inputPath(dir, text string) string {
	if list, ok := strings.CutPrefix(text, "@"); ok {
		return "@" + relativeTo(dir, list)
	}
	return relativeTo(dir, text)
}

// flagPath is relativeTo for flags that also take what is not a path: JSON, or a command in
// $PATH.
func flagPath(name, dir, text string) string {
	switch {
	case name == "kernel-config" && !namesFile(text), name == "python" && !strings.Contains(text, "/"):
		return text
	case name == "column":
		if column, path, ok := cutColumn(text); ok {
			return column + "=" + relativeTo(dir, path)
		}
		return text
	}
	return relativeTo(dir, text)
}

// kernelDir returns the folder in which the kernel runs: that of the job file if it names
// the kernel, "" for the current one.
func (j *jobFile) kernelDir() (string, error) {
	if j.dir == "" || j.origins["kernel"].file == "" && j.origins[stepsSetting].file == "" {
		return "", nil
	}
	dir, err := filepath.Abs(j.dir) // workers start in it
	if err != nil {
		return "", usagef("job file: %w", err)
	}
	return dir, nil
}
