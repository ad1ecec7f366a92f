package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/explain"
)

const explainHelp = `Show the cause of a message of gpurun and what to do about it. Paste the whole message
or a part of it. Without arguments, the message is read from standard input.

  gpurun explain 'the input pattern data/*.jsonl matches no files'
  gpurun explain 3                # an exit status
  gpurun explain oom              # a kind of failure in _error
  gpurun run -k embed.py in.jsonl -o out.jsonl 2>&1 | gpurun explain
  jq -r ._error.message out.jsonl | grep -v null | sort -u | gpurun explain

If several explanations fit, the most specific comes first. gpurun manual
reference/messages shows all of them.`

// mostExplanations limits how many explanations of a text are shown.
const mostExplanations = 3

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [MESSAGE]",
		Short: "Explain an error message: its cause and what to do",
		Long:  explainHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if len(args) == 0 || text == "-" {
				data, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
				if err != nil {
					return usagef("read standard input: %w", err)
				}
				text = string(data)
			}
			return explainMessage(os.Stdout, text)
		},
	}
}

func explainMessage(w io.Writer, text string) error {
	if title, topic, ok := explain.Topic(text); ok {
		fmt.Fprintf(w, "%s\n\n%s\n\nmore:  %s\n", title, topic, "gpurun manual troubleshooting")
		return nil
	}
	found := explain.Find(text)
	if len(found) == 0 {
		return usagef("no explanation for this text: pass a message of gpurun, without names of files, an exit status (3) or a kind of failure (oom)")
	}
	for i, entry := range found[:min(len(found), mostExplanations)] {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n  cause: %s\n  fix:   %s\n  more:  %s\n", entry.Title,
			hanging(entry.Cause), hanging(entry.Fix), "gpurun manual "+entry.Page)
	}
	return nil
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
