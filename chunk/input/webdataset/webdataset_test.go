package webdataset

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// file is an entry of an archive.
type file struct{ name, data string }

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data))}
		switch {
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		case f.data == "->":
			h.Typeflag, h.Linkname, h.Size, f.data = tar.TypeSymlink, "/etc/passwd", 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// bytesIn returns the members of an archive that are bytes.
func bytesIn(data []byte) (names []string) {
	for _, c := range findBytes(bytes.NewReader(data)) {
		names = append(names, c.Name)
	}
	return names
}

// read returns the lines of an archive, each followed by its bytes.
func read(data []byte) (text string, err error) {
	names := bytesIn(data)
	lines, err := Tar.Stream(nil, bytes.NewReader(data), format.Options{Bytes: &format.Bytes{Names: names, Beside: names}})
	if err != nil {
		return "", err
	}
	all, err := io.ReadAll(lines)
	for line := range bytes.Lines(all) {
		text += string(line)
		if lines.Blobs == nil {
			continue
		}
		for k, blob := range lines.Blobs() {
			if blob.Kind == format.BytesBlob {
				text += fmt.Sprintf("  %s %q\n", names[k], blob.Data)
			}
		}
	}
	return text, err
}

func TestRecords(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []file
		want  string
	}{
		{"members", []file{{"a/", ""}, {"a/1.jpg", "\xff\xd8"}, {"a/1.json", "{\"x\":\n1}\n"}, {"a/1.cls", "7\n"}, {"a/1.txt", "a \"cat\"\n"}, {"a/2.seg.PNG", ""}, {"a/2.cls", "dog"}},
			"{\"__key__\":\"a/1\",\"json\":{\"x\": 1},\"cls\":7,\"txt\":\"a \\\"cat\\\"\\n\"}\n  jpg \"\\xff\\xd8\"\n{\"__key__\":\"a/2\",\"cls\":\"dog\"}\n  seg.png \"\"\n"},
		{"other files", []file{{"README", "x"}, {".hidden.jpg", "x"}, {"1.jpg", "->"}, {"2.jpg", "y"}}, "{\"__key__\":\"2\"}\n  jpg \"y\"\n"},
		{"traversal", []file{{"../../etc/1.jpg", "x"}, {"/etc/2.jpg", "x"}, {"a/../../3.jpg", "x"}, {"a..b/4.jpg", "y"}},
			"rejected the name \"../../etc/1\" leaves the folder of the archive\nrejected the name \"/etc/2\" leaves the folder of the archive\nrejected the name \"a/../../3\" leaves the folder of the archive\n{\"__key__\":\"a..b/4\"}\n  jpg \"y\"\n"},
		{"twice", []file{{"1.jpg", "x"}, {"1.jpg", "y"}, {"1.png", "z"}, {"2.jpg", "z"}}, "rejected the record has two files \"jpg\"\n{\"__key__\":\"2\"}\n  jpg \"z\"\n"},
		{"not text", []file{{"1.json", "{"}, {"2.txt", "\xff"}, {"3.json", "1 2"}}, "rejected json of 1 is not valid JSON\nrejected txt of 2 is not valid UTF-8\nrejected json of 3 is not valid JSON\n"},
		{"too large", []file{{"1.jpg", "x"}, {"1.bin", strings.Repeat("x", 3000)}, {"2.jpg", "y"}}, "rejected the files of the record have more than 0 MiB together\n{\"__key__\":\"2\"}\n  jpg \"y\"\n"},
		{"empty", nil, ""},
	} {
		before := maxRecord
		if test.name == "too large" {
			maxRecord = 2000
		}
		text, err := read(archive(t, test.files...))
		maxRecord = before
		got := ""
		for line := range strings.Lines(text) {
			var marked struct {
				Error struct{ Message string } `json:"_error"`
			}
			if json.Unmarshal([]byte(line), &marked) == nil && marked.Error.Message != "" {
				line = "rejected " + marked.Error.Message + "\n"
			}
			got += line
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", test.name, err, got, test.want)
		}
	}
}

// An archive that is cut off anywhere is an error, and gives only whole records of the complete one.
func TestTorn(t *testing.T) {
	whole := archive(t, file{"1.jpg", strings.Repeat("x", 700)}, file{"1.cls", "1"}, file{"2.jpg", strings.Repeat("\x00", 512)}, file{"2.cls", "2"})
	want, err := read(whole)
	if err != nil {
		t.Fatal(err)
	}
	end := len(whole) - 2*blockBytes
	for cut := range whole {
		text, err := read(whole[:cut])
		if !strings.HasPrefix(want, text) || (err == nil) != (cut == end+blockBytes) { // one block of zeros is enough
			t.Fatalf("cut at %d of %d: %v\n%s", cut, len(whole), err, text)
		}
	}
}

func TestMatch(t *testing.T) {
	for name, want := range map[string]bool{"1.jpg": true, "1.json": true, "in.jsonl": false, "a/b.csv.gz": false, "x.parquet": false} {
		if data := archive(t, file{name, "x"}); match(data, true) != want || match(data[:300], true) {
			t.Errorf("%s", name)
		}
	}
}

// FuzzArchive reads anything: an error, or lines that are objects.
func FuzzArchive(f *testing.F) {
	f.Add(archive(f, file{"1.jpg", "x"}, file{"1.json", "{}"}))
	f.Add(archive(f, file{"a/", ""}, file{"../1.jpg", "x"}, file{"2.txt", "\xff"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := maxRecord
		maxRecord = 1 << 20
		defer func() { maxRecord = before }()
		names := bytesIn(data)
		if slices.Contains(names, "") {
			t.Errorf("%q", names)
		}
		lines, _ := Tar.Stream(nil, bytes.NewReader(data), format.Options{})
		all, _ := io.ReadAll(lines)
		for line := range bytes.Lines(all) {
			var members map[string]json.RawMessage
			if json.Unmarshal(line, &members) != nil {
				t.Fatalf("not an object: %.300q", line)
			}
		}
	})
}
