package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// requirement is a row of docs/development/requirements.md.
type requirement struct {
	asks, is string
	names    []string // in backticks, in the column where
}

var backticks = regexp.MustCompile("`([^`]+)`")

// readRequirements reads the tables with four columns.
func readRequirements(t *testing.T) (rows []requirement) {
	t.Helper()
	data, err := os.ReadFile("../../docs/development/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| asks for") {
			continue
		}
		row := requirement{asks: strings.TrimSpace(cells[0]), is: strings.TrimSpace(cells[1])}
		for _, match := range backticks.FindAllStringSubmatch(cells[2], -1) {
			row.names = append(row.names, match[1])
		}
		rows = append(rows, row)
	}
	return rows
}

// TestRequirements compares the table with the code: what is listed as present exists, and
// what exists is not listed as missing.
func TestRequirements(t *testing.T) {
	code := readCode(t)
	rows := readRequirements(t)
	if len(rows) < 100 {
		t.Fatalf("only %d rows: the table is not read right", len(rows))
	}
	for _, row := range rows {
		var missing []string
		for _, name := range row.names {
			if !code.has(name) {
				missing = append(missing, name)
			}
		}
		switch row.is {
		case "here":
			if len(row.names) == 0 || len(missing) > 0 {
				t.Errorf("%s: said to be here, but there is no %q", row.asks, missing)
			}
		case "not yet":
			if len(row.names) > 0 && len(missing) == 0 {
				t.Errorf("%s: said to be %s, but all of %q exist", row.asks, row.is, row.names)
			}
		case "no":
		default:
			t.Errorf("%s: %q is none of here, not yet, no", row.asks, row.is)
		}
	}
}

// code is the set of names in the program.
type code struct {
	names    map[string]bool   // package.Name, package.Type.Member
	aliases  map[string]string // package.Name of another type
	tags     map[string]bool   // yaml:key, json:key
	literals map[string]bool   // strings
	root     *cobra.Command
}

func (c *code) has(name string) bool {
	switch {
	case strings.HasPrefix(name, "gpurun "):
		return c.hasCommand(strings.Fields(name)[1:])
	case strings.HasPrefix(name, "--"):
		return c.hasFlag(c.root, strings.TrimPrefix(name, "--"))
	case strings.HasPrefix(name, "yaml:"), strings.HasPrefix(name, "json:"):
		return c.tags[name]
	case strings.HasPrefix(name, "event:"):
		return c.literals[strings.TrimPrefix(name, "event:")]
	case strings.Contains(name, "/") && !strings.Contains(name, " "):
		_, err := os.Stat("../../" + name)
		return err == nil
	}
	if parts := strings.SplitN(name, ".", 3); len(parts) == 3 {
		if of, ok := c.aliases[parts[0]+"."+parts[1]]; ok {
			return c.has(of + "." + parts[2])
		}
	}
	return c.names[name] || c.literals[name]
}

// hasCommand looks for a command, and for its flag if one follows.
func (c *code) hasCommand(words []string) bool {
	flag, hasFlag := strings.CutPrefix(words[len(words)-1], "--")
	if hasFlag {
		words = words[:len(words)-1]
	}
	cmd, rest, err := c.root.Find(words)
	if err != nil || len(rest) > 0 || cmd == c.root {
		return false
	}
	return !hasFlag || cmd.Flags().Lookup(flag) != nil
}

func (c *code) hasFlag(cmd *cobra.Command, flag string) bool {
	if cmd.Flags().Lookup(flag) != nil {
		return true
	}
	for _, sub := range cmd.Commands() {
		if c.hasFlag(sub, flag) {
			return true
		}
	}
	return false
}

// readCode parses every non-test file of the module.
func readCode(t *testing.T) *code {
	t.Helper()
	c := &code{names: map[string]bool{}, aliases: map[string]string{}, tags: map[string]bool{}, literals: map[string]bool{}, root: newRoot()}
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err == nil {
			c.add(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *code) add(file *ast.File) {
	pkg := file.Name.Name
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			c.names[pkg+"."+receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				c.addSpec(pkg, spec)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				c.literals[strings.Trim(n.Value, "\"`")] = true
			}
		case *ast.Field:
			if n.Tag != nil {
				c.addTags(strings.Trim(n.Tag.Value, "`"))
			}
		}
		return true
	})
}

func (c *code) addTags(text string) {
	for _, kind := range []string{"json", "yaml"} {
		if value, ok := reflect.StructTag(text).Lookup(kind); ok {
			key, _, _ := strings.Cut(value, ",")
			c.tags[kind+":"+key] = true
		}
	}
}

func (c *code) addSpec(pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			c.names[pkg+"."+name.Name] = true
		}
	case *ast.TypeSpec:
		c.names[pkg+"."+s.Name.Name] = true
		var members *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		case *ast.SelectorExpr:
			if from, ok := of.X.(*ast.Ident); ok && s.Assign.IsValid() {
				c.aliases[pkg+"."+s.Name.Name] = from.Name + "." + of.Sel.Name
			}
		}
		if members == nil {
			return
		}
		for _, field := range members.List {
			for _, name := range field.Names {
				c.names[pkg+"."+s.Name.Name+"."+name.Name] = true
			}
		}
	}
}
