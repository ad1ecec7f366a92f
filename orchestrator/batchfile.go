package orchestrator

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// checkCustomIDs refuses a batch file in which a custom_id occurs more than once: results
// could not be told apart. A stream is gone when it is read.
func (p *prepared) checkCustomIDs(ctx context.Context) error {
	if !p.config.Results.Batch || p.config.Framed || p.config.inputs.Streams() {
		return nil
	}
	list, err := record.Duplicates(func(yield func(record.Line) bool) error {
		return p.config.inputs.Each(ctx, p.config.limits(), p.config.Input.MaxRecordBytes, p.config.Input.SkipBad, yield)
	})
	if err != nil || len(list) == 0 {
		return err
	}
	first, more := list[0], ""
	if others := len(list) - 1; others > 0 {
		more = fmt.Sprintf(", and %d more occur more than once", others)
	}
	return fault.DuplicateID.New("custom_id %q occurs in %s and again in %s%s; each must be unique, or results cannot be matched with requests",
		first.ID, p.placeOf(first.First), p.placeOf(first.Second), more)
}

// streamedIDs notes that the requests of a stream are not compared.
func (p *prepared) streamedIDs() []string {
	if !p.config.Results.Batch || !p.config.inputs.Streams() {
		return nil
	}
	return []string{"the input is a stream, so gpurun does not check whether a custom_id occurs more than once"}
}

func (p *prepared) placeOf(l record.Line) string {
	return fmt.Sprintf("line %d of %s", l.Line, p.config.inputs.Files[l.File].Name)
}
