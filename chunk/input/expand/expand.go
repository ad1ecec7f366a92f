// Package expand turns the names that a user gives as input into an ordered list of files:
// globs, folders, lists of names, pipes and standard input. It opens no file but lists.
package expand

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Stdin is the name of standard input.
const Stdin = "-"

// File is one input.
type File struct {
	// Name is how to open it, as short as the user wrote it; Stdin for standard input.
	Name string
	// Info describes it; nil for standard input.
	Info os.FileInfo
	// Members are those that folders name=value in Name give to each of its records.
	Members []format.Member
}

// Regular reports whether it is a file that can be read more than once, at any place.
func (f File) Regular() bool { return f.Info != nil && f.Info.Mode().IsRegular() }

// Origin is who has written a file that a folder or glob contains.
type Origin int

const (
	// Data: a program that does not matter here.
	Data Origin = iota
	// Output: another job, as its output.
	Output
	// Own: this job, which does not read it.
	Own
)

// OriginOf returns the origin of a file. folder is the folder that was named, or the folder of a
// glob's first wildcard.
type OriginOf func(folder, name string) Origin

// Files returns the files that the names stand for. It keeps the order of the names, and sorts the
// files of a glob or folder by name. A name that exists is never a glob.
// Every mistake is a usage fault: a glob without a match, a missing file, a folder without data, the
// same file twice.
//
// A folder or glob leaves out the job's own files, and outputs of other jobs unless it
// contains nothing else; those are in left. originOf may be nil.
func Files(names []string, originOf OriginOf) (files []File, left []string, err error) {
	e := &expansion{originOf: originOf}
	for _, name := range names {
		if err := e.add(name); err != nil {
			return nil, nil, err
		}
	}
	if err := e.checkTwice(); err != nil {
		return nil, nil, err
	}
	partition(e.files)
	return e.files, e.leftOut(), nil
}

type expansion struct {
	originOf OriginOf
	files    []File
	left     []string
	lists    int // that contain one another
}

// leftOut returns the files that were left out and are not named otherwise.
func (e *expansion) leftOut() []string {
	return slices.DeleteFunc(e.left, func(name string) bool {
		return slices.ContainsFunc(e.files, func(f File) bool { return f.Name == name })
	})
}

func (e *expansion) add(name string) error {
	if name == Stdin {
		e.files = append(e.files, File{Name: Stdin})
		return nil
	}
	if name == "" {
		return fault.NoSuchInput.New("an input has an empty name")
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return e.addFolder(name)
	case err == nil:
		e.files = append(e.files, File{Name: filepath.Clean(name), Info: info})
		return nil
	case strings.HasPrefix(name, "@"):
		return e.addList(name[1:])
	case isGlob(name):
		return e.addGlob(name)
	case errors.Is(err, os.ErrNotExist):
		return NotFound(name)
	}
	return fault.InputUnreadable.Of(fault.Usage, "input: %w", err)
}

// fetchers are programs that write an object of a store to standard output.
var fetchers = map[string]string{"s3": "aws s3 cp %s -", "gs": "gcloud storage cat %s", "az": "az storage blob download", "https": "curl -sSf %s", "http": "curl -sSf %s", "hf": "hf download"}

// NotFound returns the fault of an input that does not exist.
func NotFound(name string) error {
	scheme, _, remote := strings.Cut(name, "://")
	fetch, known := fetchers[scheme]
	switch {
	case !remote:
		return fault.NoSuchInput.New("input %s does not exist", name)
	case strings.Contains(fetch, "%s"):
		return fault.RemotePath.New("input %s: gpurun reads files and standard input, not %s://; download it, mount it, or pipe it: %s | gpurun run … -",
			name, scheme, strings.ReplaceAll(fetch, "%s", name))
	case known:
		return fault.RemotePath.New("input %s: gpurun reads files and standard input, not %s://; download it first (%s)", name, scheme, fetch)
	}
	return fault.RemotePath.New("input %s: gpurun reads files and standard input, not %s://; download it first", name, scheme)
}

// addFolder adds the data files below a folder.
func (e *expansion) addFolder(name string) error {
	found, err := walk(name, isData)
	if err != nil {
		return fault.InputUnreadable.Of(fault.Usage, "input: %w", err)
	}
	if len(found) == 0 {
		return fault.NoInputFiles.New("the input folder %s contains no data files (%s)", name, strings.Join(dataNames, ", "))
	}
	if found = e.without(name, found); len(found) == 0 {
		return fault.NoInputFiles.New("the input folder %s contains no data files but those of this job", name)
	}
	return e.addFound(found)
}

// without returns the files that are data.
func (e *expansion) without(folder string, names []string) (data []string) {
	if e.originOf == nil {
		return names
	}
	var outputs []string
	for _, name := range names {
		switch e.originOf(folder, name) {
		case Data:
			data = append(data, name)
		case Output:
			outputs = append(outputs, name)
		}
	}
	if len(data) == 0 {
		return outputs // then they are what the user means
	}
	e.left = append(e.left, outputs...)
	return data
}

// addFound adds files that were found, which may be gone by now.
func (e *expansion) addFound(names []string) error {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return fault.InputUnreadable.Of(fault.Usage, "input: %w", err)
		}
		e.files = append(e.files, File{Name: name, Info: info})
	}
	return nil
}

// addList adds the names in a file, one per line.
func (e *expansion) addList(path string) error {
	if e.lists++; e.lists > maxLists {
		return fault.BadInputList.New("the input list %s contains itself", path)
	}
	defer func() { e.lists-- }()
	file := os.Stdin
	if path != Stdin {
		var err error
		if file, err = os.Open(path); err != nil {
			return fault.BadInputList.New("input list: %w", err)
		}
		defer file.Close()
	}
	before := len(e.files)
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := e.add(line); err != nil {
			return fault.BadInputList.New("line %d of the input list %s: %w", number, path, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fault.BadInputList.New("read input list %s: %w", path, err)
	}
	if len(e.files) == before {
		return fault.BadInputList.New("the input list %s names no files", path)
	}
	return nil
}

// maxLists is how deep lists may contain one another.
const maxLists = 8

// checkTwice refuses the same file under one name or several.
func (e *expansion) checkTwice() error {
	type id struct{ device, inode uint64 }
	byID := make(map[id]string, len(e.files))
	stdin := false
	for _, f := range e.files {
		if f.Info == nil {
			if stdin {
				return fault.StdinTwice.New("standard input is named twice as input")
			}
			stdin = true
			continue
		}
		device, inode, ok := inodeOf(f.Info)
		if !ok {
			continue
		}
		other, twice := byID[id{device, inode}]
		switch {
		case twice && other == f.Name:
			return fault.InputTwice.New("the input %s is named twice", f.Name)
		case twice:
			return fault.InputTwice.New("the inputs %s and %s are the same file", other, f.Name)
		}
		byID[id{device, inode}] = f.Name
	}
	return nil
}

// dataNames are the endings by which a folder's data files are known. Files of other names
// must be named, or matched by a glob.
var dataNames = []string{".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".arrows", ".feather", ".tar"}

// compressedNames may follow them.
var compressedNames = []string{".gz", ".zst"}

// isData reports whether a file in a folder is data. Files whose names begin with a dot or
// an underscore are not: writers of folders use those for files of their own.
func isData(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return false
	}
	name = strings.ToLower(name)
	for _, end := range compressedNames {
		name = strings.TrimSuffix(name, end)
	}
	for _, end := range dataNames {
		if strings.HasSuffix(name, end) {
			return !strings.HasSuffix(name, ".manifest.json") // that of a folder of parts
		}
	}
	return false
}

// jobFolder ends the names of the folders in which jobs keep files of their own.
const jobFolder = ".gpurun"

// walk returns the files below a folder whose names match, sorted. It does not enter
// folders whose names begin with a dot or an underscore.
func walk(root string, match func(name string) bool) (found []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(root, name)
		switch {
		case entry.IsDir(): // a link to a folder is not followed: it may lead back
			if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || strings.HasSuffix(name, jobFolder) {
				continue
			}
			below, err := walk(path, match)
			if err != nil {
				return nil, err
			}
			found = append(found, below...)
		case match(name):
			found = append(found, path)
		}
	}
	return found, nil
}
