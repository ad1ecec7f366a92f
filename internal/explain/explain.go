// Package explain has the cause and the fix of every message of gpurun, and finds those of
// a message that a user pastes.
//
// The files in messages/ have an area each. A pattern is a message as the code writes it,
// with … for what differs; a * covers any text, and so several messages. A test of
// cmd/gpurun collects the messages of the code and fails for one that no pattern covers.
package explain

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

//go:embed messages/*.yaml
var files embed.FS

// Area is what a file has: the messages about one subject.
type Area struct {
	Title   string  `yaml:"title"`
	Page    string  `yaml:"page"` // of the manual, without .md
	Entries []Entry `yaml:"entries"`
}

// Entry explains messages that have the same cause and fix.
type Entry struct {
	Title string `yaml:"title"`
	// Messages are patterns of messages in the code of gpurun.
	Messages []string `yaml:"messages"`
	// Others are messages of the system, of libraries and of Python.
	Others []string `yaml:"others"`
	Cause  string   `yaml:"cause"`
	Fix    string   `yaml:"fix"`
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

// In a pattern, differs stands for what differs between two occurrences of a message, and
// anything for any text of the message.
const (
	differs  = "…"
	anything = "*"
)

// matcher is a pattern that is ready for use.
type matcher struct {
	entry   *Entry
	pattern string
	pieces  []string // what does not differ, in lowercase
	weight  int      // of the pieces, in characters: a heavier pattern is more specific
}

var matchers = sync.OnceValue(func() (all []matcher) {
	for _, area := range Areas() {
		for i := range area.Entries {
			entry := &area.Entries[i]
			for _, pattern := range slices.Concat(entry.Messages, entry.Others) {
				m := matcher{entry: entry, pattern: pattern}
				for piece := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(pattern), differs, anything), anything) {
					if piece != "" {
						m.pieces = append(m.pieces, piece)
						m.weight += utf8.RuneCountInString(piece)
					}
				}
				all = append(all, m)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b matcher) int { return cmp.Compare(b.weight, a.weight) })
	return all
})

// covers reports whether the pattern describes a message of the code, in which … stands for
// what differs.
func (m matcher) covers(message string) bool {
	first, rest, open := strings.Cut(m.pattern, anything)
	if !open {
		return message == m.pattern
	}
	message, ok := strings.CutPrefix(message, first)
	for ok && open {
		first, rest, open = strings.Cut(rest, anything)
		if !open {
			return strings.HasSuffix(message, first)
		}
		_, message, ok = strings.Cut(message, first)
	}
	return false
}

// within reports whether a text in lowercase contains such a message. Where a pattern begins
// or ends with a word, it is a whole word of the text.
func (m matcher) within(text string) bool {
	before := rune(' ')
	for i, piece := range m.pieces {
		for {
			head, tail, ok := strings.Cut(text, piece)
			if !ok {
				return false
			}
			if last, size := utf8.DecodeLastRuneInString(head); size > 0 {
				before = last
			}
			next, _ := utf8.DecodeRuneInString(tail)
			text = tail
			first, _ := utf8.DecodeRuneInString(piece)
			last, _ := utf8.DecodeLastRuneInString(piece)
			begins := i > 0 || strings.HasPrefix(m.pattern, differs) || !inWord(first) || !inWord(before)
			ends := i < len(m.pieces)-1 || strings.HasSuffix(m.pattern, differs) || !inWord(last) || !inWord(next)
			before = last
			if begins && ends {
				break
			}
		}
	}
	return len(m.pieces) > 0
}

func inWord(r rune) bool {
	return r == '_' || r < utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// Covering returns the entry and the pattern that explain a message of the code, in which …
// stands for what differs: those of the most specific pattern.
func Covering(message string) (entry Entry, pattern string, ok bool) {
	for _, m := range matchers() {
		if m.covers(message) {
			return *m.entry, m.pattern, true
		}
	}
	return Entry{}, "", false
}

// Least is the number of characters from which a pattern says something about the text that
// contains it.
const Least = 5

// Find returns the entries for a text that contains messages, the most specific first.
// Patterns that are much less specific than the first one probably match by chance.
func Find(text string) (found []Entry) {
	text = strings.ToLower(strings.Join(strings.Fields(text), " ")) // terminals break lines
	seen := make(map[*Entry]bool)
	least := Least
	for _, m := range matchers() {
		if m.weight >= least && !seen[m.entry] && m.within(text) {
			seen[m.entry] = true
			least = max(least, m.weight/3)
			found = append(found, *m.entry)
		}
	}
	return found
}
