// Package explain has the cause and the fix of every code with which a message of gpurun
// ends, and what exit statuses and kinds of failure mean.
//
// The files in messages/ have an area each. Every code of package fault has one entry.
package explain

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/gpurun/gpurun/internal/fault"
)

//go:embed messages/*.yaml
var files embed.FS

// Area is what a file has: the codes of one subject.
type Area struct {
	Title   string  `yaml:"title"`
	Page    string  `yaml:"page"` // of the manual, without .md
	Entries []Entry `yaml:"entries"`
}

// Entry explains a code.
type Entry struct {
	Code  fault.Code `yaml:"code"`
	Title string     `yaml:"title"`
	Cause string     `yaml:"cause"`
	Fix   string     `yaml:"fix"`
	// Page is the page of the manual with more, if it is not that of the area; it may have
	// an anchor.
	Page string `yaml:"page"`
}

// Areas returns all entries, by area.
var Areas = sync.OnceValue(func() (all []Area) {
	names, err := fs.Glob(files, "messages/*.yaml")
	if err != nil {
		panic(err)
	}
	for _, name := range names { // in the order of their numbers
		data, err := files.ReadFile(name)
		var area Area
		if err == nil {
			err = yaml.UnmarshalWithOptions(data, &area, yaml.Strict())
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		for i := range area.Entries {
			area.Entries[i].Page = cmp.Or(area.Entries[i].Page, area.Page)
		}
		all = append(all, area)
	}
	return all
})

// Find returns the entry of a code.
func Find(code fault.Code) (Entry, bool) {
	for _, area := range Areas() {
		if i := slices.IndexFunc(area.Entries, func(e Entry) bool { return e.Code == code }); i >= 0 {
			return area.Entries[i], true
		}
	}
	return Entry{}, false
}

// ending finds what may be the code of a message.
var ending = regexp.MustCompile(`\[([a-z0-9-]+)\]`)

// In returns the entries of the codes in a text, such as the log of a job, each once.
func In(text string) (found []Entry) {
	for _, match := range ending.FindAllStringSubmatch(text, -1) {
		if e, ok := Find(fault.Code(match[1])); ok && !slices.Contains(found, e) {
			found = append(found, e)
		}
	}
	return found
}
