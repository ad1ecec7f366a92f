package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/internal/wire"
)

func TestPaths(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(t.TempDir(), "root")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret"), "secret")
	write(filepath.Join(root, "a.png"), "A")
	write(filepath.Join(root, "sub/b c%20.png"), "B")
	write(filepath.Join(root, "empty"), "")
	write(filepath.Join(root, "large"), strings.Repeat("x", 101))
	write(filepath.Join(root, "exact"), strings.Repeat("x", 100))
	write(filepath.Join(root, "closed"), "closed")
	link("a.png", "inside")
	link("sub/../a.png", "inside2")
	link(filepath.Join(outside, "secret"), "absolute")
	link("../../"+filepath.Base(outside)+"/secret", "relative")
	link(outside, "folder")
	link("loop", "loop")
	link("nothing", "dangling")
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	f := open(t, Options{Fetch: wire.Fetch{Root: root, MaxBytes: 100}})
	for value, want := range map[string]string{
		"a.png":                                  "A",
		"./a.png":                                "A",
		"sub/../a.png":                           "A",
		"sub/b c%20.png":                         "B",
		"empty":                                  "",
		"exact":                                  strings.Repeat("x", 100),
		"inside":                                 "A",
		"inside2":                                "A",
		filepath.Join(root, "a.png"):             "A",
		"file://" + root + "/a.png":              "A",
		"file://localhost" + root + "/a.png":     "A",
		"FILE://" + root + "/sub/b%20c%2520.png": "B",
		"":                                       "! the path is empty",
		"none.png":                               `! open "none.png": no such file or directory`,
		"dangling":                               `! open "dangling": no such file or directory`,
		"sub":                                    `! "sub" is a folder`,
		".":                                      `! "." is a folder`,
		root:                                     `! "` + root + `" is a folder`,
		"pipe":                                   `! "pipe" is not a regular file`,
		"large":                                  "! the file has more than fetch-max-bytes 100",
		"../root/a.png":                          `! "../root/a.png" is outside the root folder`,
		"sub/../../root/a.png":                   `! "sub/../../root/a.png" is outside the root folder`,
		"/etc/passwd":                            `! "/etc/passwd" is outside the root folder`,
		root + "x/a.png":                         `! "` + root + `x/a.png" is outside the root folder`,
		"file:///etc/passwd":                     `! "/etc/passwd" is outside the root folder`,
		"file://" + root + "/../../secret":       `! "` + root + `/../../secret" is outside the root folder`,
		"file://other/a.png":                     `! the file: URL names a file on another host, "other"`,
		"file:a.png":                             "! a file: URL needs an absolute path, as in file:///data/1.png",
		"absolute":                               `! open "absolute": path escapes from parent`,
		"relative":                               `! open "relative": path escapes from parent`,
		"folder/secret":                          `! open "folder/secret": path escapes from parent`,
		"s3://bucket/key":                        "! s3: URLs are not supported: use a path, or an http: or https: URL, such as a presigned one",
		"a\x00b":                                 `! open "a\x00b": invalid argument`,
	} {
		if got := get(t, f, value); got != want {
			t.Errorf("%q:\n got %s\nwant %s", value, got, want)
		}
	}
	if got := get(t, f, "loop"); !strings.HasPrefix(got, `! open "loop": too many`) {
		t.Errorf("loop: %s", got)
	}
}

// A link as the root is followed: it is the user's.
func TestRootIsALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "a"), []byte("A"), 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("data", link); err != nil {
		t.Fatal(err)
	}
	f := open(t, Options{Fetch: wire.Fetch{Root: link}})
	for _, value := range []string{"a", link + "/a", filepath.Join(dir, "data", "a")} {
		if got := get(t, f, value); got != "A" {
			t.Errorf("%s: %s", value, got)
		}
	}
}

func TestNoRoot(t *testing.T) {
	if got := get(t, open(t, Options{}), "a"); got != `! open the root folder for "a": there is none (fetch-root)` {
		t.Error(got)
	}
	if got := get(t, open(t, Options{Fetch: wire.Fetch{Root: "/nonexistent"}}), "a"); got != `! open the root folder for "a": no such file or directory` {
		t.Error(got)
	}
}

// A file of a file system that does not know sizes, and one that grows beyond the limit.
func TestUnknownSize(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc")
	}
	if got := get(t, open(t, Options{Fetch: wire.Fetch{Root: "/proc/self"}}), "status"); !strings.Contains(got, "Name:") {
		t.Errorf("%.100s", got)
	}
	if got := get(t, open(t, Options{Fetch: wire.Fetch{Root: "/proc/self", MaxBytes: 10}}), "status"); got != "! the file has more than fetch-max-bytes 10" {
		t.Errorf("%.100s", got)
	}
}

func TestData(t *testing.T) {
	f := open(t, Options{Fetch: wire.Fetch{MaxBytes: 12}})
	for value, want := range map[string]string{
		"data:,hello":                      "hello",
		"data:text/plain,a%20b%2c":         "a b,",
		"DATA:;base64,aGVsbG8=":            "hello",
		"data:image/png;base64,aGVsbG8":    "hello",
		"data:;BASE64,aGVs%62G8%3D":        "hello",
		"data:;base64,aGVs bG8=\n":         "hello",
		"data:;base64,_-8=":                "\xff\xef",
		"data:;base64,":                    "",
		"data:,":                           "",
		"data:base64,aGVsbG8=":             "aGVsbG8=",
		"data:text/plain;charset=x,ab":     "ab",
		"data:;base64,aaaa=":               "! the data: URI is not valid base64",
		"data:;base64,a":                   "! the data: URI is not valid base64",
		"data:;base64,!!!!":                "! the data: URI is not valid base64",
		"data:;base64,aGVs=bG8":            "! the data: URI is not valid base64",
		"data:,a%2":                        "! the data: URI has an invalid percent escape",
		"data:,a%zz":                       "! the data: URI has an invalid percent escape",
		"data:image/png":                   "! the data: URI has no comma",
		"data:,1234567890123":              "! the file has more than fetch-max-bytes 12",
		"data:;base64,MTIzNDU2Nzg5MDEy":    "123456789012",
		"data:," + strings.Repeat("x", 99): "! the file has more than fetch-max-bytes 12",
	} {
		if got := get(t, f, value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

func FuzzData(f *testing.F) {
	f.Add(";base64,aGVsbG8=")
	f.Add("text/plain,a%20b")
	fetcher := New(Options{Fetch: wire.Fetch{MaxBytes: 1 << 20}})
	f.Cleanup(fetcher.Close)
	f.Fuzz(func(t *testing.T, text string) {
		item := fetcher.Do(t.Context(), Named("data:"+text))
		if failure := item.Wait(t.Context()); failure == nil && len(item.Bytes()) > len(text) {
			t.Errorf("%q has %d bytes", text, len(item.Bytes()))
		}
		item.Release()
	})
}
