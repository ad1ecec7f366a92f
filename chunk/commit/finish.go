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
	return name(o.options, o.landed.durable, o.cutter.parts, o.results.arraySizes())
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
	if err := cmp.Or(o.land(true), o.settle()); err != nil {
		return err
	}
	return o.results.complete()
}

// finishOrder: the results get their final name last, when all other files have theirs.
var finishOrder = [chunk.PartFiles]int{chunk.Failures, chunk.FailedRecords, chunk.Results}

// Complete renames the files of an output if a crash interrupted that after the
// journal recorded them as complete.
func Complete(options Options, state State) error {
	var arrays []int64
	for i := range options.Arrays {
		arrays = append(arrays, state.sideBytes(i))
	}
	return name(options, state.Durable, state.cutParts(options).parts, arrays)
}

// name gives the files of a complete output their final names, as far as they do not have them yet.
func name(options Options, d Durable, parts []ManifestPart, arrays []int64) error {
	for i, a := range options.Arrays {
		if err := nameSized(a.Path, options.arrayPath(i), arrays[i], options.Replace); err != nil {
			return err
		}
		crash.Point("array-renamed")
	}
	final, temporary := options.paths()
	for _, i := range finishOrder {
		var err error
		if i == chunk.Results && options.PartBytes > 0 {
			err = NameFolder(temporary[i], final[i], NewManifest(parts, d.Tally.Counts, options.Format), options.replaces(i))
		} else if final[i] != "" {
			err = nameSized(final[i], temporary[i], d.Sizes[i], options.replaces(i))
		}
		if err != nil {
			return err
		}
		crash.Point("renamed")
	}
	return nil
}

// nameSized gives a file of this size its final name, unless it has it already, or was written to
// directly.
func nameSized(final, temporary string, size int64, replace bool) error {
	path := files.RealPath(final)
	info, err := os.Stat(temporary)
	named := errors.Is(err, os.ErrNotExist)
	if named && isDirect(path) && !files.IsFolder(path) {
		return nil
	}
	if named {
		info, err = os.Stat(path)
	}
	if err != nil || info.Size() != size {
		return fault.JobDamaged.New("the job was complete, but %s has changed since", final)
	}
	if named { // but perhaps not durably
		return storageOf(path, files.SyncDir(filepath.Dir(path)))
	}
	return NameFile(temporary, path, replace)
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
	_ = o.settle() // errors were reported before
	o.writeback.end()
	if o.results != nil {
		o.results.close()
	}
	for i := range o.beside {
		o.beside[i].close()
	}
}
