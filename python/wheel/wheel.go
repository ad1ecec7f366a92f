package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// wheel is a wheel in the making: binary distribution format 1.0.
type wheel struct {
	version, tag string
	files        []entry
}

type entry struct {
	name string
	data []byte
	mode fs.FileMode
}

func (w *wheel) prefix() string { return "gpurun_batch-" + w.version }
func (w *wheel) info() string   { return w.prefix() + ".dist-info" }
func (w *wheel) data() string   { return w.prefix() + ".data" }
func (w *wheel) name() string   { return w.prefix() + "-" + w.tag + ".whl" }

func (w *wheel) add(name string, data []byte, mode fs.FileMode) {
	w.files = append(w.files, entry{name, data, mode})
}

// addPackage adds the source of a Python package. The runner's folder has no __init__.py,
// because the program embeds its modules one by one.
func (w *wheel) addPackage(source, name string) error {
	folder, err := filepath.EvalSymlinks(filepath.Join(source, name))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	initialized := false
	for _, one := range entries {
		switch filepath.Ext(one.Name()) {
		case ".py", ".pyi", ".typed":
		default:
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, one.Name()))
		if err != nil {
			return err
		}
		initialized = initialized || one.Name() == "__init__.py"
		w.add(name+"/"+one.Name(), data, 0o644)
	}
	if !initialized {
		w.add(name+"/__init__.py", nil, 0o644)
	}
	return nil
}

// metadata describes the distribution. The index has another project called gpurun.
const metadata = `Metadata-Version: 2.4
Name: gpurun-batch
Version: %s
Summary: Run a kernel over millions of records on every GPU of the machine
License-Expression: Apache-2.0
%sRequires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Dist: cloudpickle
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
Provides-Extra: arrow
Requires-Dist: pyarrow; extra == "arrow"
Project-URL: Source, https://github.com/gpurun/gpurun
Description-Content-Type: text/markdown

%s`

// relative are links within the repository.
var relative = regexp.MustCompile(`\]\(([A-Za-z][^):]*)\)`)

// addMetadata adds what pip reads, with a description in Markdown and license files. It must be
// called last: RECORD lists all files.
func (w *wheel) addMetadata(description string, licenses []string) error {
	readme, err := os.ReadFile(description)
	if err != nil {
		return err
	}
	readme = relative.ReplaceAll(readme, []byte("](https://github.com/gpurun/gpurun/blob/main/$1)"))
	var named strings.Builder
	for _, path := range licenses {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w.add(w.info()+"/licenses/"+filepath.Base(path), text, 0o644)
		fmt.Fprintf(&named, "License-File: %s\n", filepath.Base(path))
	}
	w.add(w.info()+"/METADATA", fmt.Appendf(nil, metadata, w.version, named.String(), readme), 0o644)
	w.add(w.info()+"/WHEEL", fmt.Appendf(nil, "Wheel-Version: 1.0\nGenerator: gpurun\nRoot-Is-Purelib: false\nTag: %s\n", w.tag), 0o644)
	slices.SortFunc(w.files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var record strings.Builder
	for _, file := range w.files {
		sum := sha256.Sum256(file.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", file.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(file.data))
	}
	name := w.info() + "/RECORD"
	fmt.Fprintf(&record, "%s,,\n", name)
	w.add(name, []byte(record.String()), 0o644) // last, as the format recommends
	return nil
}

// epoch is the earliest time that a zip archive can hold. A real one would make every
// build different.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// encode returns the archive.
func (w *wheel) encode() ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, file := range w.files {
		header := &zip.FileHeader{Name: file.name, Method: zip.Deflate, Modified: epoch}
		header.SetMode(file.mode)
		writer, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.data); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}
