package plugins

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
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

func packReply(c *carrier, sequence uint64, batch Batch, r *Results) *kernelpb.ProcessReply {
	reply := &kernelpb.ProcessReply{Sequence: sequence, Verdicts: make([]byte, len(r.verdicts)), Nulls: uint32(min(max(r.nulls, 0), math.MaxUint32))}
	var lines [][]byte
	for i, verdict := range r.verdicts {
		switch verdict {
		case Lines:
			result := r.At(i)
			if len(result.Lines) == 1 && c.isSame(result.Lines[0], batch.Record(i)) {
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
		reply.Lines = packBlock(c, lines)
	}
	for _, column := range r.columns {
		reply.Columns = append(reply.Columns, packColumn(c, column))
	}
	return reply
}

// isSame reports whether a line is the record itself, in memory that the other side
// shares. A record that was sent inline does not count: the kernel may have changed it.
func (c *carrier) isSame(line, record []byte) bool {
	at := unsafe.SliceData(record)
	return len(line) == len(record) && unsafe.SliceData(line) == at && c.arena.isTheirs(uintptr(unsafe.Pointer(at)))
}

// unpackReply fills r from the other side's reply. An error reports how the reply is
// invalid.
func unpackReply(a *arena, reply *kernelpb.ProcessReply, r *Results) error {
	if len(reply.GetVerdicts()) != len(r.verdicts) {
		return fmt.Errorf("kernel returned %s for a batch of %d",
			plural(len(reply.GetVerdicts()), "result"), len(r.verdicts))
	}
	if size := sharedSize(reply); size > maxMessage {
		return fmt.Errorf("kernel returned %d bytes for one batch; the limit is %d", size, maxMessage)
	}
	r.nulls = int64(reply.GetNulls())
	lines, err := unpackCopy(reply.GetLines(), a)
	if err != nil {
		return fmt.Errorf("kernel returned malformed lines: %w", err)
	}
	counts, failures := reply.GetLineCounts(), reply.GetFailures()
	for i, verdict := range reply.GetVerdicts() {
		switch verdict := Verdict(verdict); verdict {
		case Lines:
			if len(counts) == 0 || counts[0] == 0 || uint64(counts[0]) > uint64(len(lines)) {
				return fmt.Errorf("kernel returned fewer lines than its verdicts have")
			}
			r.setLines(i, lines[:counts[0]:counts[0]])
			counts, lines = counts[1:], lines[counts[0]:]
		case Failed:
			if len(failures) == 0 || len(failures[0]) == 0 {
				return fmt.Errorf("kernel returned fewer messages than failed records")
			}
			if e := parseFailure(failures[0]); e.Kind == fault.Record {
				r.FailIn(i, e.Step, e.Message)
			} else {
				r.Raise(i, e.Bounded())
			}
			failures = failures[1:]
		case Unchanged, Columns, Dropped:
			r.set(i, verdict)
		default:
			return fmt.Errorf("kernel gave record %d of the batch %s", i, verdict)
		}
	}
	if len(lines) > 0 || len(counts) > 0 || len(failures) > 0 {
		return fmt.Errorf("kernel returned more lines or messages than belong to its verdicts")
	}
	return unpackColumns(a, reply.GetColumns(), r)
}

// sharedSize returns how many bytes a reply claims to have in the arena, so that the
// caller can limit how much it copies.
func sharedSize(reply *kernelpb.ProcessReply) uint64 {
	size := sharedBytes(reply.GetLines())
	for _, column := range reply.GetColumns() {
		size += sharedBytes(column.GetValues())
	}
	return size
}

func unpackColumns(a *arena, columns []*kernelpb.Column, r *Results) error {
	for _, message := range columns {
		c, err := unpackColumn(a, message)
		if err != nil {
			return fmt.Errorf("kernel returned column %q: %w", message.GetName(), err)
		}
		if r.Column(c); r.misuse != nil {
			return r.misuse
		}
	}
	if i := slices.Index(r.verdicts, Columns); i >= 0 && len(r.columns) == 0 {
		return fmt.Errorf("kernel gave record %d of the batch the verdict columns, but returned no column", i)
	}
	return nil
}

// maxDimensions is how many dimensions values can have.
const maxDimensions = 32

func packColumn(c *carrier, column Column) *kernelpb.Column {
	message := &kernelpb.Column{Name: valid(column.Name), Width: uint32(max(column.Width, 0)), Kind: column.Kind(), Values: column.values.pack(c)}
	for _, n := range column.shape {
		message.Shape = append(message.Shape, uint32(n))
	}
	return message
}

func unpackColumn(a *arena, message *kernelpb.Column) (c Column, err error) {
	name, kind, shape := message.GetName(), message.GetKind(), message.GetShape()
	if name == "" || message.GetWidth() > math.MaxInt32 {
		return c, fmt.Errorf("invalid name or width")
	}
	isText := kind == KindString || kind == KindJSON
	if len(shape) == 1 || len(shape) > maxDimensions || len(shape) > 0 && isText {
		return c, fmt.Errorf("invalid dimensions")
	}
	switch data, malformed := blockData(message.GetValues(), a); {
	case malformed != nil:
		return c, malformed
	case !isText:
		c, err = Numbers(name, kind, 0, data)
	case kind == KindString:
		var items []string
		items, err = unpackStrings(message.GetValues(), a)
		c = Strings(name, items)
	default:
		var items [][]byte
		items, err = unpackCopy(message.GetValues(), a)
		c = JSON(name, items)
	}
	c.Width = int(message.GetWidth())
	for _, n := range shape {
		c.shape = append(c.shape, int(n))
	}
	return c, err
}

// maxInFlight and maxAhead bound the memory that a kernel can make both sides hold.
const (
	maxInFlight = 64
	maxAhead    = 128
)

// bounded returns a description without numbers that make no sense.
func bounded(info Info) Info {
	info.BatchSize = min(max(info.BatchSize, 0), math.MaxInt32)
	info.InFlight = min(max(info.InFlight, 0), maxInFlight)
	info.Ahead = min(max(info.Ahead, 0), maxAhead)
	info.MaxWorkers = min(max(info.MaxWorkers, 0), math.MaxInt32)
	info.RecordTimeout = max(info.RecordTimeout, 0)
	return info
}

func unpackInfo(data []byte) (info Info, err error) {
	if len(data) > 0 {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		return Info{}, fault.KernelContract.Of(fault.Incompatible, "kernel sent a malformed description: %w", err)
	}
	info = bounded(info)
	if info.Concurrency > 0 && info.MaxWorkers == 0 {
		info.MaxWorkers = 1 // more workers would only share what one can keep busy
	}
	return info, nil
}
