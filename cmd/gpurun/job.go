package main

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// jobCommand is a command with the settings of a job: run, plan, retry, submit.
type jobCommand struct {
	flags   *pflag.FlagSet
	config  orchestrator.Config
	options options
	origins origins
	// dir is the folder that the paths in the job file are relative to; "" for the current one.
	dir string
	// fileConfigs is how many of the steps' configurations come from the job file.
	fileConfigs int
}

// newJobCommand adds the settings for which has returns true to a command; nil means all.
func newJobCommand(cmd *cobra.Command, has func(spec.Setting) bool) *jobCommand {
	j := &jobCommand{flags: cmd.Flags()}
	for _, s := range jobSettings {
		_, ofJob := spec.Find(s.Name)
		switch {
		case has != nil && !has(s):
		case ofJob:
			addFlags(j.flags, &j.config, s)
		default:
			addFlags(j.flags, &j.options, s)
		}
	}
	spec.Fill(&j.options, runSettings...)
	return j
}

// readSettings fills in what is missing on the command line: from the environment, then from the
// job file. It returns the arguments, those of the job file's setting if there are none, and
// reports all mistakes together.
func (j *jobCommand) readSettings(cmd *cobra.Command, args []string, setting string) ([]string, error) {
	j.origins = originsOf(j.flags)
	mistakes := j.origins.fromEnvironment(cmd)
	if len(args) > 0 {
		j.origins[setting] = origin{text: "argument"}
	}
	name := j.options.JobFile
	if name != "" {
		file, err := readJobFile(name)
		var found jobfile.Mistakes
		switch {
		case errors.As(err, &found):
			mistakes = append(mistakes, found...)
		case err != nil:
			return nil, err
		default:
			args = j.applyFile(file, args, setting)
		}
	}
	if len(mistakes) > 0 {
		return nil, fault.BadJobFile.New("%w", mistakes)
	}
	if name == "-" && (slices.Contains(args, "-") || slices.Contains(args, "/dev/stdin")) {
		return nil, fault.StdinTwice.New("standard input is the job file (-f -) and cannot be the input, too")
	}
	return args, cmd.Args(cmd, args) // the job file may have named too many
}

// applyFile sets the flags that neither the command line nor the environment has set. A command
// without some of the flags ignores their settings.
func (j *jobCommand) applyFile(file *jobfile.File, args []string, setting string) []string {
	j.dir = baseDir(j.options.JobFile, file)
	for name, v := range file.Values {
		flag := j.flags.Lookup(name)
		switch {
		case name == setting && len(args) == 0:
			args = movePaths(name, v.Texts, j.dir)
		case name == stepsSetting && textsOf(j.flags, "step") == nil:
			j.applySteps(v.Steps)
		case flag != nil && !flag.Changed && name != setting:
			setFlag(flag, j.dir, v)
		default:
			continue
		}
		j.origins[name] = origin{file: file.Name, line: v.Line}
	}
	return args
}

// applySteps sets the steps of a job file. Their configurations come before those of the
// command line, which replace them.
func (j *jobCommand) applySteps(steps []jobfile.Step) {
	var kernels, configs []string
	for i, step := range steps {
		kernels = append(kernels, step.Kernel)
		text := string(step.Config.JSON)
		if step.Config.Texts != nil {
			text = movePaths("kernel-config", step.Config.Texts, j.dir)[0]
		}
		if text != "" {
			configs = append(configs, stepConfig(i, text))
		}
	}
	j.fileConfigs = len(configs)
	given := settingOf(j.flags.Lookup("step-config"))
	_ = settingOf(j.flags.Lookup("step")).replace(kernels) // any text is a step
	_ = given.replace(append(configs, given.texts...))
}

// setFlag sets a flag to a value of a job file, which was checked when the file was read.
func setFlag(flag *pflag.Flag, dir string, v jobfile.Value) {
	texts := []string{string(v.JSON)}
	if v.JSON == nil {
		texts = movePaths(flag.Name, v.Texts, dir)
	}
	flag.Changed = true
	to := settingOf(flag)
	if v.IsList {
		_ = to.replace(texts)
		return
	}
	_ = to.Set(texts[0])
}

// setInputs sets the inputs to the positional arguments.
func (j *jobCommand) setInputs(args []string) {
	if j.config.Input.Path = args[0]; len(args) > 1 {
		j.config.Input.Path, j.config.Input.Paths = strings.Join(args, " "), args
	}
}

// configure builds the Config from all settings and rejects those that do not go together.
func (j *jobCommand) configure() (orchestrator.Config, error) {
	config, err := j.combine()
	return config, j.origins.explain(err)
}

func (j *jobCommand) combine() (c orchestrator.Config, err error) {
	c = j.config
	c.Input.Columns = joinTypes(c.Input.Columns)
	spec.PlaceColumns(&c.Input, &c.Output)
	if file := textOf(j.flags, "monitor-config"); file != "" {
		if c.Devices.Monitor, err = gpu.LoadConfig(file); err != nil {
			return c, err
		}
	}
	if err := setKernel(&c.Kernel, j.flags); err != nil {
		return c, err
	}
	if textsOf(j.flags, "step") == nil && resolve.SendsRequests(c.Kernel.Name, c.Kernel.Config) {
		c.Format = cmp.Or(c.Format, spec.RequestFormat(c.Input, c.Output))
	}
	c.Dir = j.kernelDir()
	return c, j.options.Lease.check(c)
}

// kernelDir returns the folder in which the kernel runs: the folder of the job file if it names
// the kernel, "" for the current one.
func (j *jobCommand) kernelDir() string {
	if j.dir == "" || j.origins["kernel"].file == "" && j.origins[stepsSetting].file == "" {
		return ""
	}
	return files.Absolute(j.dir) // workers start in it
}

// reads lists the files that the job depends on besides the input; nothing it writes may
// overwrite them. A kernel that cannot be found is reported later.
func (j *jobCommand) reads(c orchestrator.Config) (files []orchestrator.NamedFile) {
	add := func(name, path string) {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, orchestrator.NamedFile{Name: name, Path: path})
		}
	}
	if r, err := resolver(); err == nil && c.Kernel.Name != "" {
		r.Dir = cmp.Or(c.Dir, r.Dir)
		named, _ := r.Resolve(c.Kernel.Name, nil)
		for _, path := range named.Files {
			add("kernel", path)
		}
	}
	add("kernel configuration", textOf(j.flags, "kernel-config"))
	for _, config := range textsOf(j.flags, "step-config") {
		_, value, _ := strings.Cut(config, "=")
		add("kernel configuration", value)
	}
	add("monitor configuration", textOf(j.flags, "monitor-config"))
	add("job file", j.options.JobFile)
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
			return nil, fault.BadJobFile.New("job file: %w", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, jobfile.MaxBytes+1))
	if err != nil {
		return nil, fault.BadJobFile.New("read job file: %w", err)
	}
	return jobfile.Parse(shown, data, jobSettings, checkSetting)
}

// checkSetting returns why a setting of a job does not take a value.
func checkSetting(s spec.Setting, text string) error {
	if _, ofJob := spec.Find(s.Name); ofJob {
		return s.Store(new(orchestrator.Config), text)
	}
	return s.Store(new(options), text)
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

// movePaths returns values of a setting with the paths in them relative to dir.
func movePaths(setting string, texts []string, dir string) []string {
	moved := slices.Clone(texts)
	at := slices.IndexFunc(jobSettings, func(s spec.Setting) bool { return s.Name == setting })
	if path := jobSettings[at].Path; path != nil {
		for i, text := range texts {
			moved[i] = path(text, func(path string) string { return relativeTo(dir, path) })
		}
	}
	return moved
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

// moveInput is the Path of an input, which may be a file with a list of inputs.
func moveInput(value string, move func(string) string) string {
	if list, ok := strings.CutPrefix(value, "@"); ok {
		return "@" + move(list)
	}
	return move(value)
}
