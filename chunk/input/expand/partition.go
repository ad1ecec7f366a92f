package expand

import (
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// hiveNull is the value of a folder whose records have none.
const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// pair is a folder name=value, decoded.
type pair struct{ name, value string }

// pairs returns the folders name=value in the name of a file, from the outside in.
func pairs(path string) (list []pair) {
	folders := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
	for _, folder := range folders {
		name, value, ok := strings.Cut(folder, "=")
		if name = unescape(name); !ok || name == "" {
			continue
		}
		list = slices.DeleteFunc(list, func(p pair) bool { return p.name == name }) // the inner one counts
		list = append(list, pair{name, unescape(value)})
	}
	return list
}

// unescape decodes percent-encoding: a writer of folders encodes what a name cannot contain.
func unescape(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

// partition gives each file the members that its folders name. A member is an integer if all of its
// values in the job are, else a string.
func partition(files []File) {
	text := make(map[string]bool)
	for _, f := range files {
		for _, p := range pairs(f.Name) {
			if _, err := strconv.ParseInt(p.value, 10, 64); err != nil && p.value != hiveNull {
				text[p.name] = true
			}
		}
	}
	for i := range files {
		if !files[i].Regular() {
			continue
		}
		for _, p := range pairs(files[i].Name) {
			m := format.Member{Name: p.name, Type: "int64", Text: p.value}
			if text[p.name] {
				m.Type = "string"
			}
			switch n, _ := strconv.ParseInt(p.value, 10, 64); {
			case p.value == hiveNull:
				m.Value, m.Text = []byte("null"), ""
			case text[p.name]:
				m.Value = jsonline.AppendString(nil, p.value)
			default:
				m.Value = jsonline.AppendInt(nil, n)
			}
			files[i].Members = append(files[i].Members, m)
		}
	}
}
