// Package exec is the kernel that runs any program: one line in, one line out.
//
//	gpurun run -k 'exec:./score --fast' in.jsonl -o out.jsonl
//
// In batch mode, the default, a new process gets each batch, followed by the end of its input.
// It must write one line per record and exit with status 0; otherwise the batch fails with the
// last lines of its standard error. The n-th line answers the n-th record; an empty line drops
// the record.
//
// In stream mode each worker starts one process and feeds it batch after batch, so that a model
// is loaded once. The program must answer a line, or a batch, without waiting for more input. To
// that end the kernel turns off output buffering: with stdbuf, if installed, for C programs and
// with PYTHONUNBUFFERED for Python. Lines are matched to records by position, or proven by an
// identity: each repeats a member of its record (identity.go).
//
// In per-record mode a new process gets each record: all lines it writes belong to that record,
// no line drops it, and a nonzero exit status fails only that record.
//
// The program's standard error goes to the log; the last line also goes into the error
// if the program fails. From these last lines the kernel recognizes a program that ran
// out of device memory or lost the device (see [symptom.Diagnose]). A program killed by
// a signal has crashed. Because the signal may have come from outside, no record is
// blamed until it crashes a program again, alone. Any other exit fails the batch.
package exec

import (
	"context"
	"errors"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shell"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// Modes of running the program.
const (
	ModeBatch     = "batch" // the default
	ModeStream    = "stream"
	ModePerRecord = "per-record"
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

type kernel struct {
	config   resolve.ExecConfig
	identity *identity // nil without an ID
	threads  int
	onGPU    bool
	running  *program // in stream mode; nil before the first batch and after a failure
	patience patience
}

// Describe reports a missing program at plan time.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	c, err := parse(config)
	if err != nil {
		return plugins.Info{}, err
	}
	info := plugins.Info{Name: "exec:" + c.Command, GrowBatch: c.Mode == ModeBatch}
	if c.ID != "" {
		info.Inputs = []string{c.ID}
	}
	return info, shell.Check("exec", c.Command)
}

func parse(config plugins.Config) (resolve.ExecConfig, error) {
	c := resolve.ExecConfig{}
	if err := config.Decode(&c); err != nil {
		return c, err
	}
	switch c.Mode {
	case "":
		c.Mode = ModeBatch
	case ModeStream, ModeBatch, ModePerRecord:
	default:
		return c, fault.BadValue.New("unknown exec mode %q: use %s, %s or %s", c.Mode, ModeBatch, ModeStream, ModePerRecord)
	}
	if c.ID != "" && c.Mode == ModePerRecord {
		return c, fault.KernelUnsuited.New("an ID is for the modes %s and %s: with %s every line of a process answers its only record", ModeBatch, ModeStream, ModePerRecord).Set("exec-id")
	}
	if strings.TrimSpace(c.Command) == "" {
		return c, fault.NoKernel.Of(fault.Incompatible, "exec needs a program").Set("exec:./program")
	}
	return c, nil
}

// Open starts the program in stream mode, so that Open covers the time the program
// needs to load, and a missing program stops the job before the first record.
func (k *kernel) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	c, err := parse(config)
	if err != nil {
		return err
	}
	k.config, k.threads, k.onGPU = c, max(1, device.Threads), device.GPU
	k.identity = newIdentity(c.ID)
	if err := shell.Check("exec", c.Command); err != nil {
		return err
	}
	if c.Mode == ModeStream {
		k.running, err = startProgram(c)
	}
	return err
}

func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.config.Mode == ModePerRecord {
		return k.perRecord(ctx, batch, results)
	}
	sent, places := k.identified(batch, results)
	if sent.Len() == 0 {
		return nil
	}
	compute := k.oneBatch
	if k.config.Mode == ModeStream {
		compute = k.stream
	}
	lines, err := compute(sent)
	if err != nil {
		return k.classify(err)
	}
	for i, line := range lines {
		if places != nil {
			i = places[i]
		}
		if len(line) == 0 {
			results.Drop(i)
		} else {
			results.Line(i, line)
		}
	}
	return nil
}

// identified fails the records whose answers could not be checked and returns the
// others, with their indexes in the batch if any record is missing.
func (k *kernel) identified(batch plugins.Batch, results *plugins.Results) (plugins.Batch, []int) {
	if k.identity == nil {
		return batch, nil
	}
	var places []int
	var records [][]byte
	for i := range batch.Len() {
		if lacking := k.identity.lacking(batch, i); lacking != "" {
			results.Fail(i, lacking)
			continue
		}
		places, records = append(places, i), append(records, batch.Record(i))
	}
	if len(places) == batch.Len() {
		return batch, nil
	}
	return plugins.NewBatch(records), places
}

// classify determines the kind of failure from the program's last output. This process
// stays usable after any other failure: the next batch gets a new program. A signal may
// have come from outside, so it does not condemn the batch.
func (k *kernel) classify(err error) error {
	e := fault.As(err)
	if e == nil || e.Kind != fault.Unknown {
		return err
	}
	found, sign := symptom.Diagnose(e.Detail)
	if found != fault.OOM && !(found == fault.Device && k.onGPU) {
		if found != fault.Crash { // otherwise a new program may succeed, and the sign says why
			sign = ""
		}
		found = fault.Batch
		if killed, ok := errors.AsType[*killedError](err); ok {
			found = fault.Crash
			if killed.exit.Foreign() {
				sign = fault.Outside
			}
		}
	}
	return fault.KernelException.Of(found, "%w", err).WithDetail(e.Detail).Signed(sign)
}

func (k *kernel) oneBatch(batch plugins.Batch) ([][]byte, error) {
	p, err := startProgram(k.config)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	return p.exchangeAll(batch, k.identity)
}

func (k *kernel) Close() error {
	if k.running == nil {
		return nil
	}
	defer k.drop()
	return k.running.close(k.identity != nil)
}
