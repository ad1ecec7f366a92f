package commit

import (
	"errors"
	"io"
	"runtime/debug"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	giveUpRecords = 1024
	giveUpBytes   = 8 << 20
)

// GiveUp writes a part in which every record of the chunk is marked with e, so that records
// that cannot be computed are kept. Records with a mark in the input pass unchanged.
func GiveUp(c chunk.Chunk, options PartOptions, maxRecord int64, e *fault.Error) (_ chunk.Segment, err error) {
	// A line too long to read is mapped, and accessing it faults if its file is truncated.
	// That must not crash the orchestrator, which runs this.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, isFault := r.(interface{ Addr() uintptr }); !isFault {
				panic(r)
			}
			err = fault.InputChanged.Of(fault.Storage, "read input %s: it was truncated while it was being read", c.File)
		}
	}()
	reader, err := input.OpenReader(c, maxRecord)
	if err != nil {
		return chunk.Segment{}, err
	}
	defer reader.Close()
	options.Chunk = c
	part := NewPart(options)
	var batch input.Batch
	rest := c
	for {
		err := reader.Read(&batch, giveUpRecords, giveUpBytes)
		if errors.Is(err, io.EOF) {
			segment, err := part.Close(rest)
			if err != nil {
				part.Discard()
			}
			return segment, err
		}
		for i := 0; err == nil && i < len(batch.Records); i++ {
			why := e
			if mark := record.MarkOf(batch.Records[i].Data); mark != nil && string(mark) != "null" {
				if why = record.Rejected(mark); why == nil {
					why = fault.EarlierError.New("")
				}
			}
			err = part.Write(Outcome{Record: batch.Records[i], Fault: why})
		}
		rest = batch.Rest()
		batch.Release()
		if err != nil {
			part.Discard()
			return chunk.Segment{}, err
		}
	}
}
