package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Spec is a job as its settings and the names of its files decide it. It is not modified.
type Spec struct {
	Config // with defaults
	// Framed: it is the job of a retry, whose results are frames.
	Framed bool `json:"framed,omitempty"`

	Results Results `json:"-"`
	// Inputs are the input's files, once they are known: see Reading.
	Inputs []string `json:"-"`
	// LeastTimeout is the minimum a batch gets; 0 if the user has set Timeout.
	LeastTimeout time.Duration `json:"-"`
	// Notes are lines for the user.
	Notes []string `json:"-"`
}

// Resolve decides what a job is. Nothing but the names of files is looked at.
func Resolve(c Config) (*Spec, error) { return resolve(&Spec{Config: c}) }

// Streaming is Resolve for a job whose records come from a program as lines, and whose
// results go to it as frames.
func Streaming(c Config) (*Spec, error) {
	if c.Output.SourceField != "" {
		return nil, fault.BadMember.New("the source field cannot be %q", c.Output.SourceField).Set("source-field")
	}
	s, err := Resolve(c)
	if err != nil {
		return nil, err
	}
	s.Results.Store = chunk.StoreFrames
	return s, nil
}

// Retry is Resolve for the job that computes the failed records of another one, which has
// these columns. layout is theirs, as far as it is known.
func Retry(c Config, stored *columns.Spec, layout *columns.Layout) (*Spec, error) {
	s, err := resolve(&Spec{Config: c, Framed: true})
	if err != nil {
		return nil, err
	}
	s.Results.Columns, s.Results.Layout = stored, layout
	return s, nil
}

// UnmarshalJSON reads a Spec that an earlier run has stored.
func (s *Spec) UnmarshalJSON(data []byte) (err error) {
	type plain Spec
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	return s.decide()
}

// Stored returns the Spec as job.json keeps it: for a process in any folder.
func (s *Spec) Stored() *Spec {
	to := *s
	to.Output.Path, to.Output.Errors, to.Dir = Absolute(s.Output.Path), Absolute(s.Output.Errors), files.Absolute(s.Dir)
	to.Output.Format = s.Results.Format.Name
	to.Output.Arrays = slices.Clone(s.Output.Arrays)
	for i := range to.Output.Arrays {
		to.Output.Arrays[i].Path = files.Absolute(to.Output.Arrays[i].Path)
	}
	_ = to.decide() // as before
	return &to
}

// decide sets what follows from the settings.
func (s *Spec) decide() (err error) {
	if s.Results, err = results(s.Config); err != nil {
		return err
	}
	if s.Framed {
		s.Results.Store, s.Results.KeepFailed, s.Results.Asked, s.Results.Unique = chunk.StoreFrames, false, nil, nil
	}
	return nil
}

func resolve(s *Spec) (*Spec, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.setDefaults()
	if slices.Contains(stdoutNames, filepath.Clean(s.Output.Path)) {
		s.Output.Path = "-"
	}
	if s.Format == OpenAIBatch {
		s.Input.Format = "jsonl"
	}
	if err := s.decide(); err != nil {
		return nil, err
	}
	s.Resume.Spool = s.Resume.Spool && s.Results.Target.kind != stream // it would be kept for nothing
	if err := cmp.Or(checkTable(s.Config, s.Results), checkArrays(s.Output, s.Results)); err != nil {
		return nil, err
	}
	if s.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fault.NoFolder.New("working folder: %w", err)
		}
		s.Dir = dir
	}
	s.Kernel.Path = kernelPath(s.Kernel.Path, s.Dir)
	if s.Fetch.Root != "" {
		s.Fetch.Root = files.Absolute(s.Fetch.Root)
	}
	s.Notes = notesOn(s.Config, s.Results)
	return s, s.checkNames()
}

// Reading returns the Spec of a job in which the names of the input turned out to be these files,
// or streams if there are none. label is what messages call the input. bytes: records have values of
// bytes, which may be files, too.
func (s *Spec) Reading(label string, names, files []string, bytes bool) (*Spec, error) {
	with := *s
	with.Input.Path, with.Input.Paths, with.Inputs = label, names, files
	switch {
	case len(s.Fetch.Members) == 0 && !bytes:
		with.Fetch = Fetch{}
	case s.Fetch.Root == "":
		with.Fetch.Root = folderOf(s.Dir, files)
	}
	return &with, with.checkNames()
}

// With returns a Spec that differs in something.
func (s *Spec) With(change func(*Spec)) *Spec {
	with := *s
	change(&with)
	return &with
}

// Writing returns the Spec of a job that writes the same results to the files of an Output.
func (s *Spec) Writing(o Output) *Spec {
	return s.With(func(s *Spec) { s.Output.Path, s.Output.Errors, s.Output.Arrays = o.Path, o.Errors, o.Arrays }).Stored()
}

// CheckDivisible refuses a job that several machines cannot share.
func (s *Spec) CheckDivisible() error {
	switch {
	case s.Results.Target.kind == stream:
		return fault.NotForShards.New("the output %s is a stream; machines that share a job need a file or a folder", s.Output.Path)
	case s.Resume.WorkDir != "":
		return fault.NotForShards.New("machines that share a job keep their files next to the output").Set("work-dir")
	case s.Resume.Fresh:
		return fault.NotForShards.New("machines that share a job always resume it").Set("fresh")
	}
	return nil
}

// folderOf returns the folder of the input's files, the working folder if there are only
// streams, and "" if the files are in different folders: a path then has no root.
func folderOf(dir string, paths []string) string {
	if len(paths) == 0 {
		return files.Absolute(dir)
	}
	folder := filepath.Dir(files.Absolute(paths[0]))
	for _, path := range paths[1:] {
		if filepath.Dir(files.Absolute(path)) != folder {
			return ""
		}
	}
	return folder
}

// setDefaults fills in defaults.
func (s *Spec) setDefaults() {
	Fill(&s.Config, Settings...)
	if s.Failures.Timeout == 0 {
		s.Failures.Timeout, s.LeastTimeout = DefaultTimeout, leastTimeout
	}
	s.Devices.Monitor = cmp.Or(s.Devices.Monitor, gpu.DefaultConfig())
	if s.Input.Stdin == nil {
		s.Input.Stdin = os.Stdin
	}
}

// kernelPath makes the folders of kernels absolute. Those of the environment refer to the working
// folder.
func kernelPath(list, dir string) string {
	var paths []string
	for _, path := range filepath.SplitList(cmp.Or(list, os.Getenv("GPURUN_PLUGIN_PATH"))) {
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(files.Absolute(dir), path)
		}
		paths = append(paths, path)
	}
	return strings.Join(paths, string(filepath.ListSeparator))
}

// notesOn says what users should know before the work.
func notesOn(c Config, r Results) (notes []string) {
	if c.Kernel.ExecMode == "stream" && c.Kernel.ExecID == "" {
		notes = append(notes, "the lines of the program are matched to records by position: a line too many or too few would shift all later ones; "+
			"exec-id proves each line")
	}
	if strings.EqualFold(filepath.Ext(c.Output.Path), ".json") && !r.Format.Encodes() {
		notes = append(notes, fmt.Sprintf("%s will have a record in each line (JSON lines), not one JSON document", c.Output.Path))
	}
	return notes
}

// checkNames refuses names that are not valid UTF-8: workers and job.json get them as
// JSON, which would change them.
func (s *Spec) checkNames() error {
	all := slices.Concat(Named("output", s.Output.Path), Named("errors file", s.Output.Errors), Named("work folder", s.Resume.WorkDir),
		Named("working folder", s.Dir), Named("input", s.Inputs...))
	for _, a := range s.Output.Arrays {
		all = append(all, NamedFile{"array", a.Path})
	}
	for _, one := range all {
		if path := files.Absolute(one.Path); !utf8.ValidString(path) {
			return fault.NotUTF8.New("the %s %q is not valid UTF-8; rename it or use a link to it", one.Name, path)
		}
	}
	if !utf8.ValidString(s.Kernel.Name) {
		return fault.NotUTF8.New("the kernel %q is not valid UTF-8", s.Kernel.Name)
	}
	return nil
}

func (c Config) check() error {
	if err := Check(&c, Settings...); err != nil {
		return err
	}
	switch {
	case c.Input.Path == "" && len(c.Input.Paths) == 0:
		return fault.NoInput.New("no input: name a file of JSON lines, or - for standard input")
	case c.Kernel.Name == "":
		kernel := "echo"
		for _, name := range append(c.Input.Paths, c.Input.Path) {
			if filepath.Ext(name) == ".py" { // it is probably meant as the kernel
				kernel = name
			}
		}
		return fault.NoKernel.New("no kernel: name one, for example %s", kernel).Set(kernel)
	case len(c.Kernel.Config) > 0 && !json.Valid(c.Kernel.Config):
		return fault.NotAConfig.New("the kernel configuration is not valid JSON")
	}
	if strings.HasPrefix(c.Output.SourceField, "_error") {
		return fault.BadMember.New("the source field cannot be %q", c.Output.SourceField).Set("source-field")
	}
	if err := c.checkLines(); err != nil {
		return err
	}
	for _, name := range c.Output.Keep {
		if strings.TrimSpace(name) == "" {
			return fault.BadMember.New("a member to keep has an empty name").Set("keep")
		}
	}
	for _, what := range c.Resume.AcceptChanges {
		if !slices.Contains(Acceptable, what) {
			return fault.BadValue.New("change %q cannot be accepted, only %s", what, strings.Join(Acceptable, ", ")).Set("accept-changes")
		}
	}
	return c.checkFetch()
}

// Acceptable lists the changes that a user may accept.
var Acceptable = []string{"kernel", "config"}

// checkLines refuses settings that do not combine with lines of batch files.
func (c Config) checkLines() error {
	switch {
	case c.Format == "":
		return nil
	case c.Input.Format != "" && c.Input.Format != "jsonl":
		return refuseWith(c.Format, "an input format", "input-format")
	case c.Output.SourceField != "":
		return refuseWith(c.Format, "a source field", "source-field")
	case len(c.Output.Columns) > 0 || len(c.Output.Arrays) > 0 || c.Output.isTable():
		return refuseWith(c.Format, "an output of columns", "output-format")
	case len(c.Output.Keep) > 0:
		return refuseWith(c.Format, "choosing members", "keep")
	}
	return nil
}

func refuseWith(format, what, setting string) error {
	return fault.BadMember.New("the format %s fixes what lines contain: %s does not combine with it", format, what).Set(setting)
}

const (
	// maxFetchMembers is how many members may name files.
	maxFetchMembers = 16
	// maxFetchBytes is the most that the files of one record may have together: a record is
	// sent to the kernel in one message.
	maxFetchBytes = 900 << 20
)

// checkFetch rejects settings that no record could satisfy.
func (c Config) checkFetch() error {
	var names []string
	for _, m := range c.Fetch.Members {
		switch {
		case strings.TrimSpace(m.Name) == "" || strings.TrimSpace(m.Field) == "":
			return fault.BadFetch.New("a file to fetch needs a name and the member that names it").Set("fetch")
		case m.Name == m.Field:
			return fault.BadFetch.New("the file that member %q names needs another name: the kernel reads both", m.Field).Set("fetch")
		case slices.Contains(names, m.Name):
			return fault.BadFetch.New("two files to fetch are named %q", m.Name).Set("fetch")
		}
		names = append(names, m.Name)
	}
	if len(names) > maxFetchMembers {
		return fault.BadFetch.New("at most %d files can be fetched for a record", maxFetchMembers).Set("fetch")
	}
	if n := max(1, int64(len(names))); c.Fetch.MaxBytes > maxFetchBytes/n {
		return fault.BadFetch.New("the files of a record may have at most %d MiB together, each at most %d MiB", maxFetchBytes>>20, maxFetchBytes/n>>20).Set("fetch-max-bytes")
	}
	if c.Fetch.Root != "" && !files.IsFolder(c.Fetch.Root) {
		return fault.BadFetch.New("the root folder %s of the files to fetch does not exist", c.Fetch.Root).Set("fetch-root")
	}
	return nil
}
