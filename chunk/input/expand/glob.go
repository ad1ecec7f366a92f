package expand

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// isGlob reports whether a name is a pattern.
func isGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// addGlob adds the files that a pattern matches, sorted by name. ** stands for any number
// of folders.
func (e *expansion) addGlob(pattern string) error {
	found, err := glob(filepath.Clean(pattern))
	if err != nil {
		return fault.NoMatch.New("input pattern %s: %w", pattern, err)
	}
	if len(found) == 0 {
		return fault.NoMatch.New("the input pattern %s matches no files", pattern)
	}
	if found = e.without(globRoot(pattern), found); len(found) == 0 {
		return fault.NoMatch.New("the input pattern %s matches no files but those of this job", pattern)
	}
	return e.addFound(found)
}

// globRoot returns the folder that a pattern names without any wildcard.
func globRoot(pattern string) string {
	for isGlob(pattern) {
		pattern = filepath.Dir(pattern)
	}
	return pattern
}

// glob returns the files, not folders, that a pattern matches, sorted.
func glob(pattern string) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	root, parts := "", strings.Split(pattern, "/")
	if strings.HasPrefix(pattern, "/") {
		root, parts = "/", parts[1:]
	}
	g := globber{found: make(map[string]bool)}
	if err := g.match(root, parts); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(g.found)), nil
}

// globber collects matches: two ways through ** may lead to the same file.
type globber struct{ found map[string]bool }

// match matches the parts of a pattern below a folder.
func (g *globber) match(dir string, parts []string) error {
	part, rest := parts[0], parts[1:]
	switch {
	case part == "**" && len(rest) == 0:
		rest = []string{"*"}
		fallthrough
	case part == "**":
		if err := g.match(dir, rest); err != nil {
			return err
		}
		return g.each(dir, func(entry os.DirEntry) error {
			if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || strings.HasSuffix(entry.Name(), jobFolder) {
				return nil
			}
			return g.match(filepath.Join(dir, entry.Name()), parts)
		})
	case !isGlob(part):
		return g.step(filepath.Join(dir, part), rest)
	}
	return g.each(dir, func(entry os.DirEntry) error {
		name := entry.Name()
		if strings.HasPrefix(name, ".") && !strings.HasPrefix(part, ".") { // as in shells
			return nil
		}
		if ok, err := filepath.Match(part, name); err != nil || !ok {
			return err
		}
		return g.step(filepath.Join(dir, name), rest)
	})
}

// step matches the rest of the pattern below what one part has matched.
func (g *globber) step(path string, rest []string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil: // a link to nothing, or no such name
		return nil
	case len(rest) == 0 && !info.IsDir():
		g.found[path] = true
	case len(rest) > 0 && info.IsDir():
		return g.match(path, rest)
	}
	return nil
}

// each calls visit for every entry of a folder. A folder that does not exist has none.
func (g *globber) each(dir string, visit func(os.DirEntry) error) error {
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := visit(entry); err != nil {
			return err
		}
	}
	return nil
}
