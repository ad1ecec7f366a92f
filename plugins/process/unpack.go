package process

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// This file converts the messages of a kernel process. It validates everything before it is used,
// for example as an index.

// parseFailure returns a failure as the kernel sent it, perhaps of unknown kind; nil if it
// sent none.
func parseFailure(failure []byte) *fault.Error {
	if len(failure) == 0 {
		return nil
	}
	e := &fault.Error{}
	if err := json.Unmarshal(failure, e); err != nil {
		e = fault.KernelContract.Of(fault.Unknown, "kernel sent a malformed failure")
	}
	e.Code = cmp.Or(e.Code, fault.KernelException)
	return e
}

// unpackFailure returns a failure as an error, with the given kind if the kernel sent none
// or one that this version does not know.
func unpackFailure(failure []byte, kind fault.Kind) error {
	e := parseFailure(failure)
	if e == nil {
		return nil
	}
	e.Kind = cmp.Or(e.Kind, kind)
	return e.Bounded()
}

// unpackReply fills r from the other side's reply. An error reports how the reply is
// invalid.
func unpackReply(a *protocol.Arena, reply *kernelpb.ProcessReply, r *plugins.Results) error {
	if len(reply.GetVerdicts()) != r.Len() {
		return fmt.Errorf("kernel returned %d results for a batch of %d", len(reply.GetVerdicts()), r.Len())
	}
	if size := sharedSize(reply); size > protocol.MaxMessage {
		return fmt.Errorf("kernel returned %d bytes for one batch; the limit is %d", size, protocol.MaxMessage)
	}
	r.AddNulls(int64(reply.GetNulls()))
	lines, err := protocol.UnpackCopy(reply.GetLines(), a)
	if err != nil {
		return fmt.Errorf("kernel returned malformed lines: %w", err)
	}
	counts, failures := reply.GetLineCounts(), reply.GetFailures()
	for i, verdict := range reply.GetVerdicts() {
		switch verdict := plugins.Verdict(verdict); verdict {
		case plugins.Lines:
			if len(counts) == 0 || counts[0] == 0 || uint64(counts[0]) > uint64(len(lines)) {
				return fmt.Errorf("kernel returned fewer lines than its verdicts have")
			}
			r.Lines(i, lines[:counts[0]:counts[0]]...)
			counts, lines = counts[1:], lines[counts[0]:]
		case plugins.Failed:
			if len(failures) == 0 || len(failures[0]) == 0 {
				return fmt.Errorf("kernel returned fewer messages than failed records")
			}
			if e := parseFailure(failures[0]); e.Kind == fault.Record {
				r.FailIn(i, e.Step, e.Message)
			} else {
				r.Raise(i, e.Bounded())
			}
			failures = failures[1:]
		case plugins.Unchanged:
			r.Unchanged(i)
		case plugins.Dropped:
			r.Drop(i)
		case plugins.Columns: // as every record without another verdict
			if len(reply.GetColumns()) == 0 {
				return fmt.Errorf("kernel gave record %d of the batch the verdict columns, but returned no column", i)
			}
		default:
			return fmt.Errorf("kernel gave record %d of the batch %s", i, verdict)
		}
	}
	if len(lines) > 0 || len(counts) > 0 || len(failures) > 0 {
		return fmt.Errorf("kernel returned more lines or messages than belong to its verdicts")
	}
	for _, message := range reply.GetColumns() {
		c, err := unpackColumn(a, message)
		if err != nil {
			return fmt.Errorf("kernel returned column %q: %w", message.GetName(), err)
		}
		r.Column(c)
	}
	return nil
}

// sharedSize returns how many bytes a reply claims to have in the arena, so that the
// caller can limit how much it copies.
func sharedSize(reply *kernelpb.ProcessReply) uint64 {
	size := protocol.SharedBytes(reply.GetLines())
	for _, column := range reply.GetColumns() {
		size += protocol.SharedBytes(column.GetValues())
	}
	return size
}

// maxDimensions is how many dimensions values can have.
const maxDimensions = 32

func unpackColumn(a *protocol.Arena, message *kernelpb.Column) (c plugins.Column, err error) {
	name, kind, shape := message.GetName(), message.GetKind(), message.GetShape()
	if name == "" || message.GetWidth() > math.MaxInt32 {
		return c, fmt.Errorf("invalid name or width")
	}
	isText := kind == plugins.KindString || kind == plugins.KindJSON || kind == plugins.KindBytes
	if len(shape) == 1 || len(shape) > maxDimensions || len(shape) > 0 && isText {
		return c, fmt.Errorf("invalid dimensions")
	}
	switch data, malformed := protocol.Data(message.GetValues(), a); {
	case malformed != nil:
		return c, malformed
	case !isText:
		c, err = plugins.Numbers(name, kind, 0, data)
	case kind == plugins.KindString:
		var items []string
		items, err = protocol.UnpackStrings(message.GetValues(), a)
		c = plugins.Strings(name, items)
	default:
		var items [][]byte
		if items, err = protocol.UnpackCopy(message.GetValues(), a); kind == plugins.KindJSON {
			c = plugins.JSON(name, items)
		} else if err == nil {
			c, err = plugins.PackedBytes(name, items)
		}
	}
	c.Width = int(message.GetWidth())
	dimensions := make([]int, len(shape))
	for i, n := range shape {
		dimensions[i] = int(n)
	}
	return c.Shaped(dimensions...), err
}

// unpackAnswer returns an answer from the other process, as the contract allows it.
func (l *link) unpackAnswer(message *kernelpb.Answer) plugins.Answer {
	a := plugins.Answer{
		Verdict: plugins.Verdict(min(message.GetVerdict(), math.MaxUint8)), Lines: message.GetLines(),
		Message: message.GetMessage(), Detail: message.GetDetail(), Nulls: int64(message.GetNulls()), Figures: message.GetFigures(),
		Server: plugins.ServerState(min(message.GetServer(), math.MaxUint8)),
		Err:    l.unpackComputing(message.GetFailure(), fault.Batch),
		After:  time.Duration(min(message.GetAfterMilliseconds(), maxAfter)) * time.Millisecond,
	}
	return a.Checked(l.isOnCPU())
}

// maxAfter is the longest time, in milliseconds, that a kernel can ask to wait: a day.
const maxAfter = 24 * 60 * 60 * 1000

func unpackInfo(data []byte) (info plugins.Info, err error) {
	if len(data) > 0 {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		return plugins.Info{}, fault.KernelContract.Of(fault.Incompatible, "kernel sent a malformed description: %w", err)
	}
	info = info.Bounded()
	if info.Concurrency > 0 && info.MaxWorkers == 0 {
		info.MaxWorkers = 1 // more workers would only share what one can keep busy
	}
	return info, nil
}
