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
	if o.failed != nil {
		return o.failed
	}
	if err := o.endUnits(); err != nil {
		return err
	}
	if err := o.settle(); err != nil {
		return err
	}
	if err := cmp.Or(o.endArrays(), o.writeGroups()); err != nil {
		return err
	}
	if n := len(o.waiting); n > 0 {
		return fault.New(fault.Unknown, "bug: %d segments wait for record %d", n, o.next)
	}
	if err := o.partsPresent(); err != nil {
		return err
	}
	if o.options.Journal != nil {
		if err := o.journal(Entry{Complete: o.durable()}); err != nil {
			return err
		}
		crash.Point("complete")
	}
	if err := o.finishArrays(); err != nil {
		return err
	}
	for _, i := range finishOrder {
		if err := o.finish(i); err != nil {
			return err
		}
		crash.Point("renamed")
	}
	return nil
}

// partsPresent returns a fault if a part was removed from the folder or changed its size.
func (o *Output) partsPresent() error {
	if o.cutter == nil {
		return nil
	}
	for _, p := range o.cutter.parts {
		path := filepath.Join(o.targets[chunk.Results].temporary, p.Name)
		size, err := sizeOf(path)
		if err != nil {
			return storageOf(path, err)
		}
		if size != p.Bytes {
			return removedMeanwhile(path)
		}
	}
	return nil
}

// finish gives a file, or the folder of parts, its final name.
func (o *Output) finish(i int) error {
	if i == chunk.Results && o.cutter != nil {
		return o.targets[i].finishFolder(NewManifest(o.cutter.parts, o.tally.Counts, o.options.Format), o.options.replaces(i))
	}
	return o.targets[i].finish(o.options.replaces(i))
}

// finishOrder: the results get their final name last, when all other files have theirs.
var finishOrder = [chunk.PartFiles]int{chunk.Failures, chunk.FailedRecords, chunk.Results}

// Complete renames the files of an output if a crash interrupted that after the
// journal recorded them as complete.
func Complete(options Options, state State) error {
	final, temporary := options.paths()
	if err := completeArrays(options, state); err != nil {
		return err
	}
	for _, i := range finishOrder {
		if i == chunk.Results && options.PartBytes > 0 {
			m := NewManifest(state.cutParts(options).parts, state.Durable.Tally.Counts, options.Format)
			if err := NameFolder(temporary[i], final[i], m, options.replaces(i)); err != nil {
				return err
			}
			continue
		}
		if final[i] == "" || isDirect(final[i]) && !files.IsFolder(final[i]) { // written directly, without a temporary name
			continue
		}
		if err := completeFile(final[i], temporary[i], state.Durable.Sizes[i], options.replaces(i)); err != nil {
			return err
		}
	}
	return nil
}

// completeFile gives a file of this size its final name, unless it has it already.
func completeFile(final, temporary string, size int64, replace bool) error {
	path := files.RealPath(final)
	info, err := os.Stat(temporary)
	named := errors.Is(err, os.ErrNotExist)
	if named {
		info, err = os.Stat(path)
	}
	if err != nil || info.Size() != size {
		return fault.New(fault.Conflict, "the job was complete, but %s has changed since", final).WithCode(fault.Damaged, "")
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
	for i := range o.targets {
		o.targets[i].close()
	}
	o.closeArrays()
}
