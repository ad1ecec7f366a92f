package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage is a page of the manual, in the language of man(7).
type manPage struct {
	name    string // gpurun-run
	section string // 1 for commands, 7 for help topics
	text    []byte
}

// manPages returns a page for each command and each help topic below cmd, from their help
// texts. They depend on the program only: no date makes two builds differ.
func manPages(cmd *cobra.Command) (pages []manPage) {
	pages = append(pages, newManPage(cmd))
	for _, sub := range listed(cmd) {
		pages = append(pages, manPages(sub)...)
	}
	return pages
}

// listed returns the subcommands that the help lists.
func listed(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return sub.Hidden || sub.Name() == "help"
	})
}

// manName returns the name and the section of a command's page.
func manName(cmd *cobra.Command) (name, section string) {
	section = "1"
	if cmd.IsAdditionalHelpTopicCommand() {
		section = "7"
	}
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-"), section
}

func newManPage(cmd *cobra.Command) manPage {
	cmd.InitDefaultHelpFlag()
	page := manPage{}
	page.name, page.section = manName(cmd)
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s %s \"\" \"gpurun %s\" \"gpurun manual\"\n", roff(strings.ToUpper(page.name)), page.section, roff(versionText()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(page.name), roff(cmd.Short))
	if page.section == "1" {
		arguments := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
		fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(cmd.CommandPath()), roff(strings.TrimSpace(arguments)))
	}
	b.WriteString(".SH DESCRIPTION\n")
	writeManText(&b, cmp.Or(cmd.Long, cmd.Short))
	writeManFlags(&b, cmd)
	if page.section == "1" {
		b.WriteString(".SH EXIT STATUS\n0 means success.\n.BR gpurun\\-exit\\-codes (7)\nlists the others.\n")
	}
	writeSeeAlso(&b, cmd)
	page.text = b.Bytes()
	return page
}

// writeManText writes a help text. Indented lines are examples or tables and keep their
// form, other lines are paragraphs.
func writeManText(b *bytes.Buffer, text string) {
	verbatim, blanks := false, 1 // blank lines before this one
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if strings.TrimSpace(line) == "" {
			blanks++
			continue
		}
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case verbatim && indented:
			b.WriteString(strings.Repeat("\n", blanks))
		case verbatim:
			b.WriteString(".fi\n.RE\n.PP\n")
		case indented:
			b.WriteString(".PP\n.RS 2\n.nf\n")
		case blanks > 0:
			b.WriteString(".PP\n")
		}
		verbatim, blanks = indented, 0
		b.WriteString(roffLine(strings.TrimPrefix(line, "  ")) + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n.RE\n")
	}
}

// writeManFlags writes the flags under the headings of the help.
func writeManFlags(b *bytes.Buffer, cmd *cobra.Command) {
	for i, section := range flagSections(cmd) {
		if i == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		if section.title != allFlags {
			fmt.Fprintf(b, ".SS %s\n", roff(section.title))
		}
		for _, flag := range section.flags {
			names, about := flagUsage(flag)
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(names), roffLine(about))
		}
	}
}

// flagUsage returns a flag as the help shows it: its names with its value, and what it does,
// with the default.
func flagUsage(flag *pflag.Flag) (names, about string) {
	alone := newGroup()
	alone.AddFlag(flag)
	names, about, _ = strings.Cut(strings.TrimSpace(alone.FlagUsages()), "   ")
	return names, strings.Join(strings.Fields(about), " ")
}

func writeSeeAlso(b *bytes.Buffer, cmd *cobra.Command) {
	var names []string
	add := func(other *cobra.Command) {
		name, section := manName(other)
		names = append(names, fmt.Sprintf(".BR %s (%s)", roff(name), section))
	}
	if cmd.HasParent() {
		add(cmd.Parent())
	}
	for _, sub := range listed(cmd) {
		add(sub)
	}
	b.WriteString(".SH SEE ALSO\n" + strings.Join(names, ",\n") + "\n")
}

// roffEscapes keeps the characters that people copy from a page as they are.
var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff escapes text inside a line.
func roff(text string) string { return roffEscapes.Replace(text) }

// roffLine escapes a line of text, which must not be taken for a request.
func roffLine(line string) string {
	if strings.HasPrefix(line, ".") {
		return `\&` + roff(line)
	}
	return roff(line)
}
