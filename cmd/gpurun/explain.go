package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/explain"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/internal/progress"
)

const explainHelp = `Show the cause of an error and what to do about it. Messages of gpurun end with a code in
brackets; pass the code, or - to read a log from standard input and explain every code in
it. Without arguments, the codes are listed.

  gpurun explain no-match         # the code of: … matches no files [no-match]
  gpurun explain 3                # an exit status
  gpurun explain oom              # a kind of failure in _error
  gpurun run -k embed.py in.jsonl -o out.jsonl 2>&1 | gpurun explain -

gpurun manual reference/messages shows the explanations of all codes.`

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE | -]",
		Short: "Explain the code of an error message: its cause and what to do",
		Long:  explainHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			switch text {
			case "":
				return listCodes(os.Stdout)
			case "-":
				data, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
				if err != nil {
					return fault.UnknownCode.New("read standard input: %w", err)
				}
				text = string(data)
			}
			return explainText(os.Stdout, text)
		},
		ValidArgsFunction: cobra.FixedCompletions(codeNames(), cobra.ShellCompDirectiveNoFileComp),
	}
}

func codeNames() (names []string) {
	for _, code := range fault.Codes() {
		names = append(names, string(code))
	}
	return names
}

// listCodes lists the codes with their titles, by subject.
func listCodes(out io.Writer) error {
	w := progress.NewTable(out)
	for i, area := range explain.Areas() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, area.Title)
		for _, e := range area.Entries {
			fmt.Fprintf(w, "  %s\t%s\n", e.Code, e.Title)
		}
	}
	return w.Flush()
}

// explainText explains an exit status, a kind of failure or the codes in a text.
func explainText(w io.Writer, text string) error {
	text = strings.TrimSpace(text)
	if title, topic, ok := explain.Topic(text); ok {
		fmt.Fprintf(w, "%s\n\n%s\n\nmore:  %s\n", title, topic, "gpurun manual troubleshooting")
		return nil
	}
	found := explain.In(text)
	if e, ok := explain.Find(fault.Code(strings.Trim(text, "[]"))); ok {
		found = []explain.Entry{e}
	}
	for i, e := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s [%s]\n  cause: %s\n  fix:   %s\n  more:  gpurun manual %s\n", e.Title, e.Code, hanging(e.Cause), hanging(e.Fix), e.Page)
	}
	switch {
	case len(found) > 0:
		return nil
	case strings.ContainsAny(text, " \n"):
		return fault.UnknownCode.New("this text has no code: messages of gpurun end with one, such as [no-match]; gpurun explain lists them")
	}
	return fault.UnknownCode.New("there is no code %q%s", text, nearest.Hint(text, codeNames(), max(2, len(text)/3), "; gpurun explain lists them"))
}

// hanging breaks a text into lines that continue below its first one.
func hanging(text string) string {
	const width, indent = 78, "\n         "
	var b strings.Builder
	column := len(indent) - 1
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString(indent)
			column = len(indent) - 1
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
