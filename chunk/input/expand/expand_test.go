package expand

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/fault"
)

// folder creates files, and folders for names that end in a slash, and makes it the working
// directory.
func folder(t *testing.T, names ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(name, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func namesOf(files []File) (names []string) {
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

func TestFiles(t *testing.T) {
	folder(t, "a.jsonl", "b.jsonl.gz", "d/2026-01/part-1.jsonl.zst", "d/2026-01/part-2.jsonl.zst", "d/2026-02/part-1.jsonl.zst",
		"d/2026-02/notes.txt", "d/.hidden.jsonl", "d/_tmp/x.jsonl", "d/out.gpurun/x.jsonl", "d/out.manifest.json", "[x].jsonl", "d/2026-10/deep/x.CSV", "e/")
	if err := os.Symlink("../a.jsonl", "e/link.jsonl"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("list.txt", []byte("# a comment\n\nb.jsonl.gz\n  d/2026-01/*.zst\r\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	all := []string{"d/2026-01/part-1.jsonl.zst", "d/2026-01/part-2.jsonl.zst", "d/2026-02/part-1.jsonl.zst"}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ names, want []string }{
		{[]string{"a.jsonl"}, []string{"a.jsonl"}},
		{[]string{"./a.jsonl", "b.jsonl.gz"}, []string{"a.jsonl", "b.jsonl.gz"}},
		{[]string{"b.jsonl.gz", "a.jsonl"}, []string{"b.jsonl.gz", "a.jsonl"}},
		{[]string{"-"}, []string{"-"}},
		{[]string{"a.jsonl", "-"}, []string{"a.jsonl", "-"}},
		{[]string{"*.jsonl"}, []string{"[x].jsonl", "a.jsonl"}},
		{[]string{"[x].jsonl"}, []string{"[x].jsonl"}},
		{[]string{"[a].jsonl"}, []string{"a.jsonl"}},
		{[]string{"d/2026-*/part-*.jsonl.zst"}, all},
		{[]string{"d/**/*.zst"}, all},
		{[]string{"**/part-1*"}, []string{all[0], all[2]}},
		{[]string{"d/**/2026-02/**/part*"}, all[2:]},
		{[]string{here + "/d/2026-0?/part-1.*"}, []string{here + "/" + all[0], here + "/" + all[2]}},
		{[]string{"d"}, append(append([]string{}, all...), "d/2026-10/deep/x.CSV")},
		{[]string{"e"}, []string{"e/link.jsonl"}},
		{[]string{"@list.txt"}, append([]string{"b.jsonl.gz"}, all[:2]...)},
		{[]string{"a.jsonl", "@list.txt"}, append([]string{"a.jsonl", "b.jsonl.gz"}, all[:2]...)},
	} {
		files, _, err := Files(test.names, nil)
		if err != nil {
			t.Errorf("%q: %v", test.names, err)
			continue
		}
		got := namesOf(files)
		if len(test.want) == 4 { // the folder is sorted by path
			want := append([]string{}, test.want...)
			if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
				t.Errorf("%q: %s", test.names, diff)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q: %s", test.names, diff)
		}
	}
}

func sorted(names []string) map[string]bool {
	all := make(map[string]bool)
	for _, name := range names {
		all[name] = true
	}
	return all
}

func TestFilesRefuses(t *testing.T) {
	folder(t, "a.jsonl", "empty/", "texts/x.txt", "empty.txt")
	for name, err := range map[string]error{
		"link": os.Symlink("a.jsonl", "link.jsonl"), "hard link": os.Link("a.jsonl", "hard.jsonl"),
		"self":  os.WriteFile("self.txt", []byte("@self.txt\n"), 0o666),
		"list":  os.WriteFile("list.txt", []byte("a.jsonl\nmissing.jsonl\n"), 0o666),
		"empty": os.WriteFile("empty.txt", nil, 0o666),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, test := range []struct {
		names []string
		text  string
	}{
		{[]string{"missing.jsonl"}, "input missing.jsonl does not exist"},
		{[]string{"*.gz"}, "pattern *.gz matches no files"},
		{[]string{"no/**/such/*.gz"}, "matches no files"},
		{[]string{"[a.jsonl"}, "input pattern [a.jsonl"},
		{[]string{"empty"}, "folder empty contains no data files (.jsonl"},
		{[]string{"texts"}, "contains no data files"},
		{[]string{"a.jsonl", "a.jsonl"}, "the input a.jsonl is named twice"},
		{[]string{"a.jsonl", "./a.jsonl"}, "named twice"},
		{[]string{"a.jsonl", "link.jsonl"}, "a.jsonl and link.jsonl are the same file"},
		{[]string{"*.jsonl"}, "are the same file"},
		{[]string{"hard.jsonl", "a.jsonl"}, "are the same file"},
		{[]string{"-", "-"}, "standard input is named twice"},
		{[]string{"@missing.txt"}, "input list"},
		{[]string{"@empty.txt"}, "names no files"},
		{[]string{"@self.txt"}, "contains itself"},
		{[]string{"@list.txt"}, "line 2 of the input list list.txt: input missing.jsonl does not exist"},
		{[]string{""}, "empty name"},
	} {
		_, _, err := Files(test.names, nil)
		if err == nil || fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%q: %v, want %s", test.names, err, test.text)
		}
	}
}

// TestManyFiles: 10,000 files are found in order.
func TestManyFiles(t *testing.T) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("d/%02d/%05d.jsonl", i/200, i))
	}
	folder(t, names...)
	for _, name := range []string{"d", "d/**/*.jsonl", "d/*/*"} {
		files, _, err := Files([]string{name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(names, namesOf(files)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestAddresses: gpurun reads no object stores, and says what to do instead.
func TestAddresses(t *testing.T) {
	for name, want := range map[string]string{
		"s3://bucket/in.jsonl": "not s3://; download it, mount it, or pipe it: aws s3 cp s3://bucket/in.jsonl - | gpurun run … -",
		"https://x.org/a.gz":   "curl -sSf https://x.org/a.gz | gpurun run … -",
		"ftp://x.org/a":        "not ftp://; download it first",
		"nothing.jsonl":        "input nothing.jsonl does not exist",
	} {
		if _, _, err := Files([]string{name}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
