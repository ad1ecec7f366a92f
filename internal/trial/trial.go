// Package trial runs a kernel on a few records in the foreground, and shows each record next
// to what the kernel makes of it.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/python"
)

// ErrSomeFailed means that some records failed, which the table shows.
var ErrSomeFailed = errors.New("some records failed")

// Trial is a kernel that is tried out.
type Trial struct {
	// Kernel is what the user calls it. Command starts it; its environment selects the device.
	Kernel  string
	Command process.Command
	Config  plugins.Config
	Device  plugins.Device
	// Out gets the table, which is Width columns wide, 0 for the default.
	Out   io.Writer
	Width int
	Color bool
	// Message returns the text of an error.
	Message func(error) string

	// Imports is what the kernel has imported, once Run has opened it.
	Imports plugins.Imports

	view    *sideBySide
	opened  plugins.Kernel
	end     func()   // frees what opened leaves
	size    int      // records per batch; 0 means no preference
	fetched []string // the names under which records have files
	reads   bool     // the kernel reads files

	failed, raised int // records; raised are those that an exception or error failed
}

// Run opens the kernel, computes the records of a sample and shows the results.
func (t *Trial) Run(ctx context.Context, s Sample) error {
	t.view = &sideBySide{out: t.Out, width: cmp.Or(t.Width, plainWidth), color: t.Color}
	for _, m := range s.Fetch.Members {
		t.fetched = append(t.fetched, m.Name)
	}
	named := len(t.fetched) > 0
	t.fetched = append(t.fetched, s.bytes...)
	defer restoreTerminal()()
	defer proc.KillChildren() // processes that the kernel left behind
	err := t.open(ctx, named)
	if err == nil {
		err = t.compute(ctx, s.records)
	}
	if ctx.Err() != nil {
		proc.KillChildren() // a kernel at a breakpoint would not close
		if offer, warm := template.Offered(); warm {
			proc.KillMarked(template.MarkVariable + "=" + offer.Mark)
		}
	}
	switch ended := t.close(); {
	case err != nil || ended == nil:
	case fault.KindOf(ended) == fault.Timeout: // the results are there; large frameworks take long to unload
		fmt.Fprintln(os.Stderr, "note:", ended)
	default:
		err = ended
	}
	if ctx.Err() != nil {
		return fault.Interrupted.New("stopped")
	}
	return err
}

// open starts and opens the kernel. fetches: it must read files that records name.
func (t *Trial) open(ctx context.Context, fetches bool) (err error) {
	fmt.Fprintf(os.Stderr, "%s on %s\n", t.Kernel, t.Device.Name)
	if t.opened, t.end, err = startInTerminal(ctx, t.Command); err != nil {
		return err
	}
	info, err := t.opened.Describe(ctx, t.Config)
	if err != nil {
		return err
	}
	if info.NeedsGPU && !t.Device.GPU {
		return fault.NeedsGPU.Of(fault.NoDevice, "kernel %s needs a GPU, and %s is not one", t.Kernel, t.Device.Name)
	}
	if t.reads = info.ReadsFetched; fetches && !t.reads {
		return fault.KernelUnsuited.New("kernel %s does not read fetched files: use a Python kernel, openai: or serve: with images, or one that declares that it reads them", t.Kernel).Set("fetch")
	}
	t.size = info.BatchSize
	if err := t.opened.Open(ctx, t.Device, t.Config); err != nil {
		return err
	}
	if r, ok := t.opened.(plugins.Reporter); ok {
		t.Imports = r.Report().Imports
	}
	return nil
}

// startInTerminal starts a kernel whose output appears on the terminal. A Python kernel
// can also read from it: its interpreter is then a child of this process.
func startInTerminal(ctx context.Context, command process.Command) (k plugins.Kernel, end func(), err error) {
	if n := len(command.Args); n == 0 || command.Args[n-1] != "python" {
		command.Log = os.Stderr
		process, err := process.Start(ctx, command)
		if err != nil {
			return nil, nil, err
		}
		return process, process.Kill, nil
	}
	for _, entry := range command.Env { // those that select the device
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, nil, err
		}
	}
	k, end = process.Loopback(python.NewInTerminal())
	return k, end, nil
}

// compute computes the records in batches and shows the results.
func (t *Trial) compute(ctx context.Context, records []sampleRecord) error {
	for batch := range slices.Chunk(records, cmp.Or(t.size, len(records))) {
		if err := t.batch(ctx, batch); err != nil {
			return err
		}
	}
	switch {
	case t.raised > 0 && t.view.shown == t.raised:
		return fault.KernelFails.New("the kernel failed on every record")
	case t.failed > 0:
		return ErrSomeFailed
	}
	return nil
}

// batch computes one batch. If it fails, its records are tried one by one. A line that is not JSON
// never reaches a kernel.
func (t *Trial) batch(ctx context.Context, records []sampleRecord) error {
	var lines, files [][]byte
	for _, record := range records {
		lines, files = append(lines, record.line), append(files, record.files...)
		switch {
		case record.invalid == "":
		case len(records) > 1:
			return t.apart(ctx, records)
		default:
			t.fail(record, record.invalid)
			return nil
		}
	}
	batch := plugins.NewBatch(lines)
	if t.reads {
		batch = batch.WithFetched(t.fetched, files)
	}
	results, err := plugins.Call(ctx, t.opened, batch)
	switch kind := fault.KindOf(err); {
	case err == nil:
	case ctx.Err() != nil || kind == fault.Crash || kind == fault.Device || kind == fault.Incompatible:
		return err
	case len(records) > 1:
		fmt.Fprintf(os.Stderr, "%s\nthe batch of %d records failed; trying them one by one\n", t.Message(err), len(records))
		failed := t.failed
		if err := t.apart(ctx, records); err != nil || t.failed > failed {
			return err
		}
		return fault.FailsInBatches.New("the kernel fails on batches: %d records failed as a batch, and each of them succeeds alone", len(records))
	default:
		fmt.Fprintln(os.Stderr, t.Message(err))
		t.raised++
		t.fail(records[0], err.Error())
		return nil
	}
	for i, record := range records {
		lines, err := plugins.ResultLines(record.line, results, i)
		if err != nil {
			t.fail(record, err.Error())
			continue
		}
		t.view.computed(record, lines)
	}
	return nil
}

// apart computes records one by one.
func (t *Trial) apart(ctx context.Context, records []sampleRecord) error {
	for _, record := range records {
		if err := t.batch(ctx, []sampleRecord{record}); err != nil {
			return err
		}
	}
	return nil
}

// fail counts and shows a failed record.
func (t *Trial) fail(record sampleRecord, message string) {
	t.failed++
	t.view.failed(record, message)
}

// close closes the kernel, if it was started.
func (t *Trial) close() error {
	if t.opened == nil {
		return nil
	}
	defer t.end()
	return t.opened.Close()
}
