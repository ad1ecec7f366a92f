package commit

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Finish makes the output durable and renames its files; the results come last. If a step
// fails, the remaining ones are skipped.
func (o *Output) Finish() error {
	defer o.close()
	if err := o.seal(); err != nil {
		return err
	}
	if n := len(o.waiting); n > 0 {
		return fault.Bug.New("bug: %d segments wait for record %d", n, o.head.Next)
	}
	if err := o.results.present(); err != nil {
		return err
	}
	if err := o.journal(Entry{Complete: &o.landed.durable}); err != nil {
		return err
	}
	crash.Point("complete")
	return name(o.options, o.head.Tally.Counts, o.cutter.parts, func(kind int) int64 { return o.targets[kind].size })
}

// seal ends the results.
func (o *Output) seal() error {
	if o.failed != nil {
		return o.failed
	}
	o.options.Layout.Settle() // there may be no result
	if o.units.endAll() {
		o.units.reach(o.head)
	}
	if err := cmp.Or(o.land(true), o.awaitPoint()); err != nil {
		return err
	}
	return o.results.complete()
}

// Complete renames the files of an output if a crash interrupted that after the
// journal recorded them as complete.
func Complete(options Options, state State) error {
	return name(options, state.Durable.Tally.Counts, state.cutParts(options).parts, state.size)
}

// name gives the files of a complete output, which have these sizes, their final names, as far as they do
// not have them yet.
func name(options Options, counts chunk.Counts, parts []ManifestPart, size func(kind int) int64) (err error) {
	for _, f := range options.files() {
		switch {
		case f.kind == chunk.Results && options.PartBytes > 0:
			err = NameFolder(f.temporary, f.final, NewManifest(parts, counts, options.Format), f.replace)
		case f.final != "":
			err = f.name(size(f.kind))
		}
		switch {
		case err != nil:
			return err
		case f.kind >= chunk.PartFiles:
			crash.Point("array-renamed")
		default:
			crash.Point("renamed")
		}
	}
	return nil
}

// name gives a file of this size its final name, unless it has it already, or was written to
// directly.
func (f outputFile) name(size int64) error {
	path := files.RealPath(f.final)
	info, err := os.Stat(f.temporary)
	named := errors.Is(err, os.ErrNotExist)
	if named && isDirect(path) && !files.IsFolder(path) {
		return nil
	}
	if named {
		info, err = os.Stat(path)
	}
	if err != nil || info.Size() != size {
		return fault.JobDamaged.New("the job was complete, but %s has changed since", f.final)
	}
	if named { // but perhaps not durably
		return storageOf(path, files.SyncDir(filepath.Dir(path)))
	}
	return NameFile(f.temporary, path, f.replace)
}

// Abandon closes the output without renaming its files. It makes as much as possible
// durable, so that little remains to verify on resume.
func (o *Output) Abandon() {
	_ = o.Checkpoint(true)
	o.close()
}

func (o *Output) close() {
	o.closed = true
	if o.units != nil {
		o.units.drop()
	}
	_ = o.awaitPoint() // errors were reported before
	o.writeback.end()
	for i := range o.targets {
		o.targets[i].close()
	}
}
