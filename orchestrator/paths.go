package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Checks of user-supplied paths, before any work.

// checkNames refuses names that are not valid UTF-8: workers and job.json get them as
// JSON, which would change them.
func checkNames(config Config) error {
	type named struct{ what, name string }
	names := []named{
		{"output", config.Output.Path}, {"errors file", config.Output.Errors},
		{"work folder", config.Resume.WorkDir}, {"working folder", config.Dir},
	}
	for _, path := range config.inputPaths() {
		names = append(names, named{"input", path})
	}
	for _, a := range config.Output.Arrays {
		names = append(names, named{"array", a.Path})
	}
	for _, one := range names {
		if one.name != "" && one.name != "-" && !utf8.ValidString(absolute(one.name)) {
			return fault.New(fault.Usage, "the %s %q is not valid UTF-8; rename it or use a link to it", one.what, absolute(one.name))
		}
	}
	if !utf8.ValidString(config.Kernel.Name) {
		return fault.New(fault.Usage, "the kernel %q is not valid UTF-8", config.Kernel.Name)
	}
	return nil
}

// checkInput reports an input that does not exist; withInput has reported everything else.
func checkInput(config Config) error {
	if config.inputs != nil {
		return nil
	}
	_, err := os.Stat(config.Input.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return expand.NotFound(config.Input.Path)
	case err != nil:
		return fault.New(fault.Usage, "input: %w", err)
	}
	return nil
}

// format is that of the output, once checkFormat has passed.
func (c Config) format() encode.Format {
	format, _ := c.chooseFormat()
	return format
}

// chooseFormat returns the format of the output. The name of a pipe or device says nothing.
func (c Config) chooseFormat() (encode.Format, error) {
	if c.Output.Path == "" || isStream(c.Output.Path) {
		return encode.ByName(c.Output.Format)
	}
	return encode.Choose(c.Output.Path, c.Output.Format)
}

// checkOutputFolders catches a mistyped path before the job folder is created.
func checkOutputFolders(config Config) error {
	if config.Resume.WorkDir != "" {
		if !files.IsFolder(config.Resume.WorkDir) {
			return fault.New(fault.Usage, "the work folder %s does not exist: mkdir -p %s", config.Resume.WorkDir, config.Resume.WorkDir)
		}
	}
	paths := []string{config.Output.Path, config.Output.Errors}
	for _, a := range config.Output.Arrays {
		paths = append(paths, a.Path)
	}
	for _, path := range paths {
		if path == "" || path == "-" {
			continue
		}
		if scheme, _, remote := strings.Cut(path, "://"); remote {
			return fault.New(fault.Usage, "output %s: gpurun writes files and standard output, not %s://; write a file and upload it", path, scheme)
		}
		dir := filepath.Dir(filepath.Clean(path))
		if files.IsFolder(dir) { // the target of a link needs one, too
			dir = filepath.Dir(realPath(path))
		}
		if !files.IsFolder(dir) {
			return fault.New(fault.Usage, "the folder %s for %s does not exist: mkdir -p %s", dir, path, dir)
		}
	}
	return nil
}

func checkOutputs(config Config) error {
	if config.Output.Path == "" {
		return nil // a plan needs none; Run requires one
	}
	check := checkOutput
	if keepsParts(config.Output.Path) {
		check = checkPartFolder
	}
	if err := check(config, "output", config.Output.Path); err != nil {
		return err
	}
	if err := checkArrayFiles(config); err != nil || config.Output.Errors == "" {
		return err
	}
	if config.Output.Errors == "-" || samePath(config.Output.Errors, config.Output.Path) {
		return fault.New(fault.Usage, "the errors file must not be the output").Set("errors")
	}
	return checkOutput(config, "errors file", config.Output.Errors)
}

func checkOutput(config Config, what, path string) error {
	if path == "-" {
		return nil
	}
	if what == "errors file" && !isStream(path) {
		if format, _, err := encode.ByPath(what, path); err != nil || format.Encodes() {
			return fault.New(fault.Usage, "the %s %s would contain JSON lines; name it *%s", what, path, encode.Lines().Ending())
		}
	}
	for _, in := range config.inputPaths() {
		if samePath(path, in) {
			return fault.New(fault.Usage, "the %s %s is the input itself; name another file", what, path)
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		hint := ""
		if what == "output" {
			hint = fmt.Sprintf(", or write %s/ for the output in parts", strings.TrimSuffix(path, "/"))
		}
		return fault.New(fault.Usage, "the %s %s is a folder; name a file in it%s", what, path, hint)
	case err == nil && info.Mode().IsRegular() && !config.Output.Force:
		return fault.New(fault.Usage, "the %s %s already exists", what, path).WithCode(fault.Exists, "")
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fault.New(fault.Usage, "%s: %w", what, err)
	}
	return nil
}

// withDifference adds to the error about an output that exists why the job is not the one
// that has finished here.
func (f *folder) withDifference(ctx context.Context, c Config, err error) error {
	e := fault.As(err)
	if e == nil || e.Code != fault.Exists {
		return err
	}
	if missing := checkInput(c); missing != nil {
		return missing
	}
	m, unread := readManifest(f.join(manifestFile))
	if unread != nil {
		return err // another program has written it
	}
	if list := (&earlier{manifest: m}).changes(c); len(list) > 0 {
		var texts []string
		if len(m.Fingerprint.Input.Files) > 0 && list[0].what == "input" {
			e = e.WithCode(fault.Exists, "files")
		}
		if report, err := readReport(f.join(reportFile)); err == nil && report.Failed > 0 && list[0].what == "kernel" {
			e = e.WithCode(fault.Exists, "failed")
		}
		for _, change := range list {
			texts = append(texts, change.text)
		}
		return fault.New(e.Kind, "%s, and the job has changed since it wrote that file: %s", e.Message, strings.Join(texts, "; ")).WithCode(e.Code, e.Value)
	}
	if report, err := readReport(f.join(reportFile)); err == nil && report.Stop == nil && !f.outputUnchanged(ctx, c.Output.Path, report) {
		return fault.New(e.Kind, "%s, and is no longer what the job wrote", e.Message).WithCode(e.Code, e.Value)
	}
	return err
}

// checkPartFolder refuses a folder of parts that would replace files gpurun did not
// write.
func checkPartFolder(config Config, what, path string) error {
	dir := filepath.Clean(path)
	others := []NamedFile{{"errors file", config.Output.Errors}, {"work folder", config.Resume.WorkDir}}
	for _, in := range config.inputPaths() {
		others = append(others, NamedFile{"input", in})
	}
	for _, other := range others {
		if other.Path != "" && other.Path != "-" && isInside(other.Path, dir) {
			return fault.New(fault.Usage, "the %s %s is in the %s folder %s, which is replaced as a whole; choose another place", other.Name, other.Path, what, path)
		}
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fault.New(fault.Usage, "%s %s: %w", what, path, err)
	case len(entries) > 0 && !config.Output.Force:
		return fault.New(fault.Usage, "the %s folder %s already exists", what, path).WithCode(fault.Exists, "")
	}
	if err := commit.Replaceable(dir); err != nil {
		return fault.New(fault.Usage, "the %s folder %s cannot be replaced: %w; choose another or move it away", what, path, err)
	}
	return nil
}

// isInside reports whether a path is below a folder, following links.
func isInside(path, dir string) bool {
	below, err := filepath.Rel(realPath(dir), realPath(path))
	return err == nil && filepath.IsLocal(below)
}

// samePath reports whether two names lead to the same file, which need not exist yet.
func samePath(a, b string) bool {
	if realPath(a) == realPath(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && infoA.Mode().IsRegular() && os.SameFile(infoA, infoB)
}

// realPath resolves a name to an absolute path, even if the file does not exist yet.
func realPath(path string) string { return files.RealPath(absolute(path)) }

// forWorker returns a chunk as a worker finds it, which may run in another folder.
func (p *prepared) forWorker(c chunk.Chunk) chunk.Chunk {
	if c.Source == "" && p.config.Output.SourceField != "" && p.config.inputs == nil {
		c.Source = p.config.Input.Path
	}
	if absolute(p.config.Dir) != absolute(".") {
		c.File = absolute(c.File)
	}
	return c
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return filepath.Clean(path)
}
