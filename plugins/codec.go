package plugins

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// This file converts between the messages of kernel.proto and the values of this
// package. It validates everything from the other process before it is used, for example
// as an index.

// encode returns the JSON of a value that can always be encoded.
func encode(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}

func packFailure(err error) []byte {
	if err == nil {
		return nil
	}
	var failure fault.Error
	if e := fault.As(err); e != nil {
		failure = *e
	}
	failure.Message, failure.Detail = valid(err.Error()), valid(failure.Detail)
	return encode(failure)
}

// valid makes s valid UTF-8, as protobuf requires: otherwise a message that quotes a
// record's bytes would break the connection.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func packReply(c *protocol.Carrier, sequence uint64, batch Batch, r *Results) *kernelpb.ProcessReply {
	reply := &kernelpb.ProcessReply{Sequence: sequence, Verdicts: make([]byte, len(r.verdicts)), Nulls: uint32(min(max(r.nulls, 0), math.MaxUint32))}
	var lines [][]byte
	for i, verdict := range r.verdicts {
		switch verdict {
		case Lines:
			result := r.At(i)
			if len(result.Lines) == 1 && c.IsSame(result.Lines[0], batch.Record(i)) {
				verdict = Unchanged
				break
			}
			if lines == nil {
				lines = make([][]byte, 0, len(r.verdicts)+len(result.Lines))
			}
			lines = append(lines, result.Lines...)
			reply.LineCounts = append(reply.LineCounts, uint32(len(result.Lines)))
		case Failed:
			result := r.At(i)
			failure := result.Raised
			if failure == nil {
				failure = fault.KernelException.Of(fault.Record, "%s", result.Message).InStep(result.Step)
			}
			reply.Failures = append(reply.Failures, packFailure(failure))
		}
		reply.Verdicts[i] = byte(verdict)
	}
	if lines != nil {
		reply.Lines = protocol.Pack(c, lines)
	}
	for _, column := range r.columns {
		reply.Columns = append(reply.Columns, packColumn(c, column))
	}
	return reply
}

func packColumn(c *protocol.Carrier, column Column) *kernelpb.Column {
	message := &kernelpb.Column{Name: valid(column.Name), Width: uint32(max(column.Width, 0)), Kind: column.Kind(), Values: column.values.pack(c)}
	for _, n := range column.shape {
		message.Shape = append(message.Shape, uint32(n))
	}
	return message
}

func packAnswer(number uint64, a Answer) *kernelpb.Answer {
	return &kernelpb.Answer{
		Number: number, Verdict: uint32(a.Verdict), Lines: a.Lines,
		Message: valid(a.Message), Detail: valid(a.Detail), Failure: packFailure(a.Err),
		AfterMilliseconds: uint64(max(a.After, 0).Milliseconds()), Nulls: uint32(min(max(a.Nulls, 0), math.MaxUint32)), Figures: a.Figures, Server: uint32(a.Server),
	}
}
