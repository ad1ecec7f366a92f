package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/wire"
)

const warmHelp = `With --keep-warm, run and try leave an interpreter behind that has imported the
installed packages of a Python kernel, for example torch. The next run or try with the
flag forks it and runs the kernel's file, so that an edit of the file takes effect. That
takes a second instead of the time that the imports take.

  gpurun try --keep-warm embed.py in.jsonl
  gpurun run --keep-warm 1h -k embed.py in.jsonl -o out.jsonl
  gpurun warm stop

It is used only with the same interpreter, environment and packages, ends when it was not
used for the given time, and opens no GPU. At most four are kept, in a quarter of the
host's memory; gpurun status lists them. Only you can use them.`

func newWarm() *cobra.Command {
	cmd := &cobra.Command{Use: "warm", Short: "End the interpreters that --keep-warm has kept", Long: warmHelp}
	var o struct{ JSON bool }
	cmd.AddCommand(newCommand(&cobra.Command{
		Use:   "stop",
		Short: "End the interpreters that no job uses",
		Long:  "End the interpreters that no job uses.\n\n  gpurun warm stop",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := template.ListWarm(true)
			if err != nil {
				return fault.TempFolder.New("warm interpreters: %w", err)
			}
			list = append([]template.Warm{}, list...) // an empty list in JSON, not null
			return resultOf(list, writeStopped).show(o.JSON)
		},
	}, &o, jsonSetting))
	return cmd
}

// writeStopped says which interpreters were ended, and which are in use.
func writeStopped(w io.Writer, list []template.Warm) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no warm interpreter is running")
	}
	for _, warm := range list {
		how := "ended"
		if warm.Children > 0 {
			how = "still used by a job, and not ended"
		}
		fmt.Fprintf(w, "%s (process %d): %s\n", warm.About, warm.PID, how)
	}
}

// offerWarm lets a kernel that this process opens fork from a warm template.
func offerWarm(keep time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	socket, err := template.KeepWarm(self, wire.TemplatesArgument, "warm")
	if err != nil {
		return fault.TempFolder.New("keep-warm: %w", err).Set("keep-warm")
	}
	return os.Setenv(template.Variable, template.Offer{Mark: template.NewMark(), Keep: keep, Socket: socket}.String())
}
