package plugins

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/rawnum"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// This file converts between the messages of kernel.proto and the values of this
// package. It validates everything from the other process before it is used, for example
// as an index.

func packFailure(err error) *kernelpb.Failure {
	if err == nil {
		return nil
	}
	failure := &kernelpb.Failure{Kind: uint32(fault.KindOf(err)), Message: valid(err.Error())}
	if e := fault.As(err); e != nil {
		failure.Detail, failure.Step, failure.Sign = valid(e.Detail), valid(e.Step), valid(string(e.Sign))
		failure.Code, failure.Value = valid(string(e.Code)), valid(e.Value)
	}
	return failure
}

// valid makes s valid UTF-8, as protobuf requires: otherwise a message that quotes a
// record's bytes would break the connection.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// unpackFailure returns a failure as an error, with the given kind if the kernel sent none
// or one that this version does not know.
func unpackFailure(failure *kernelpb.Failure, kind fault.Kind) error {
	if failure == nil {
		return nil
	}
	if k := fault.Kind(failure.GetKind()); k != fault.Unknown && k.Known() && failure.GetKind() <= math.MaxUint8 {
		kind = k
	}
	e := fault.Error{
		Kind: kind, Message: failure.GetMessage(), Detail: failure.GetDetail(), Step: failure.GetStep(),
		Sign: fault.Sign(failure.GetSign()), Code: cmp.Or(fault.Code(failure.GetCode()), fault.KernelException), Value: failure.GetValue(),
	}
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
			reply.Messages = append(reply.Messages, valid(result.Message))
			if result.Step != "" { // then every message needs one
				reply.MessageSteps = append(reply.MessageSteps, make([]string, len(reply.Messages)-1-len(reply.MessageSteps))...)
				reply.MessageSteps = append(reply.MessageSteps, valid(result.Step))
			}
			if r.isolated {
				failure := &kernelpb.Failure{}
				if result.Raised != nil {
					failure = packFailure(result.Raised)
				}
				reply.Failures = append(reply.Failures, failure)
			}
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
	counts, messages, steps, failures := reply.GetLineCounts(), reply.GetMessages(), reply.GetMessageSteps(), reply.GetFailures()
	for i, verdict := range reply.GetVerdicts() {
		switch verdict := Verdict(verdict); verdict {
		case Lines:
			if len(counts) == 0 || counts[0] == 0 || uint64(counts[0]) > uint64(len(lines)) {
				return fmt.Errorf("kernel returned fewer lines than it announced")
			}
			n := counts[0]
			r.setLines(i, lines[:n:n])
			lines, counts = lines[n:], counts[1:]
		case Failed:
			if len(messages) == 0 {
				return fmt.Errorf("kernel returned fewer messages than failed records")
			}
			step := ""
			if len(steps) > 0 {
				step, steps = steps[0], steps[1:]
			}
			if len(failures) > 0 && failures[0].GetKind() != uint32(fault.Unknown) {
				r.Raise(i, unpackFailure(failures[0], fault.Batch))
			} else {
				r.FailIn(i, step, messages[0])
			}
			messages, failures = messages[1:], failures[min(1, len(failures)):]
		case Unchanged, Columns, Dropped:
			r.set(i, verdict)
		default:
			return fmt.Errorf("kernel gave record %d of the batch %s", i, verdict)
		}
	}
	if len(lines) > 0 || len(counts) > 0 || len(messages) > 0 {
		return fmt.Errorf("kernel returned more lines or messages than belong to its verdicts")
	}
	return unpackColumns(a, reply.GetColumns(), r)
}

// sharedSize returns how many bytes a reply claims to have in the arena, so that the
// caller can limit how much it copies.
func sharedSize(reply *kernelpb.ProcessReply) uint64 {
	size := blockSize(reply.GetLines())
	for _, column := range reply.GetColumns() {
		size = addSizes(size, addSizes(blockSize(column.GetStrings()), blockSize(column.GetJson())))
		if column.Offset != nil {
			size = addSizes(size, column.GetSize())
		}
	}
	return size
}

// addSizes adds without overflowing.
func addSizes(a, b uint64) uint64 { return a + min(b, math.MaxUint64-a) }

func unpackColumns(a *arena, columns []*kernelpb.Column, r *Results) error {
	for _, message := range columns {
		c, err := unpackColumn(a, message)
		if err != nil {
			return err
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
	message := &kernelpb.Column{Name: valid(column.Name), Width: uint32(max(column.Width, 0))}
	for _, n := range column.shape {
		message.Shape = append(message.Shape, uint32(n))
	}
	switch v := column.values.(type) {
	case []float32:
		message.Values = &kernelpb.Column_Float32S{Float32S: packNumbers(c, message, v, rawnum.Put)}
	case []float64:
		message.Values = &kernelpb.Column_Float64S{Float64S: packNumbers(c, message, v, rawnum.Put)}
	case []int64:
		message.Values = &kernelpb.Column_Int64S{Int64S: packNumbers(c, message, v, rawnum.Put)}
	case []bool:
		message.Values = &kernelpb.Column_Bools{Bools: packNumbers(c, message, v, rawnum.PutBools)}
	case []string:
		message.Values = &kernelpb.Column_Strings{Strings: packBlock(c, v)}
	case jsonValues:
		message.Values = &kernelpb.Column_Json{Json: packBlock(c, [][]byte(v))}
	}
	return message
}

func unpackColumn(a *arena, message *kernelpb.Column) (Column, error) {
	c := Column{Name: message.GetName(), Width: int(message.GetWidth())}
	for _, n := range message.GetShape() {
		c.shape = append(c.shape, int(n))
	}
	var err error
	switch v := message.GetValues().(type) {
	case *kernelpb.Column_Float32S:
		c.values, err = unpackNumbers(message, v.Float32S, a, rawnum.Get[float32])
	case *kernelpb.Column_Float64S:
		c.values, err = unpackNumbers(message, v.Float64S, a, rawnum.Get[float64])
	case *kernelpb.Column_Int64S:
		c.values, err = unpackNumbers(message, v.Int64S, a, rawnum.Get[int64])
	case *kernelpb.Column_Bools:
		c.values, err = unpackNumbers(message, v.Bools, a, rawnum.GetBools)
	case *kernelpb.Column_Strings:
		c.values, err = unpackStrings(v.Strings, a)
	case *kernelpb.Column_Json:
		var items [][]byte
		items, err = unpackCopy(v.Json, a)
		c.values = jsonValues(items)
	default:
		err = fmt.Errorf("this version does not know its type")
	}
	if err == nil && (message.GetName() == "" || message.GetWidth() > math.MaxInt32) {
		err = fmt.Errorf("invalid name or width")
	}
	if err == nil && len(c.shape) > 0 && (len(c.shape) == 1 || len(c.shape) > maxDimensions || c.Kind() == KindString || c.Kind() == KindJSON) {
		err = fmt.Errorf("invalid dimensions")
	}
	if err != nil {
		return c, fmt.Errorf("kernel returned column %q: %w", message.GetName(), err)
	}
	return c, nil
}

func packInfo(info Info) *kernelpb.Info {
	return &kernelpb.Info{
		Name: valid(info.Name), Version: valid(info.Version),
		BatchSize: uint32(min(max(info.BatchSize, 0), math.MaxInt32)), InFlight: uint32(inFlight(info)), Ahead: uint32(ahead(info)),
		GrowBatch: info.GrowBatch,
		NeedsGpu:  info.NeedsGPU, Frameworks: allValid(info.Frameworks), Inputs: allValid(info.Inputs), OnlyInputs: info.OnlyInputs,
		MinMemory: info.MinMemory, CanTrim: info.CanTrim, MaxWorkers: uint32(min(max(info.MaxWorkers, 0), math.MaxInt32)),
		GroupBy: valid(info.GroupBy), Concurrency: uint32(min(max(info.Concurrency, 0), math.MaxInt32)), ReadsFetched: info.ReadsFetched,
		NoDevice: info.NoDevice, NeedsInputs: info.NeedsInputs, RecordTimeoutMs: uint64(max(info.RecordTimeout.Milliseconds(), 0)),
	}
}

func allValid(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, valid(text))
	}
	return out
}

// maxInFlight and maxAhead bound the memory that a kernel can make both sides hold.
const (
	maxInFlight = 64
	maxAhead    = 128
)

func inFlight(info Info) int { return min(max(info.InFlight, 0), maxInFlight) }
func ahead(info Info) int    { return min(max(info.Ahead, 0), maxAhead) }

func unpackInfo(info *kernelpb.Info) Info {
	out := Info{
		Name: info.GetName(), Version: info.GetVersion(),
		BatchSize: int(min(info.GetBatchSize(), math.MaxInt32)), InFlight: int(min(info.GetInFlight(), maxInFlight)), Ahead: int(min(info.GetAhead(), maxAhead)),
		GrowBatch: info.GetGrowBatch(),
		NeedsGPU:  info.GetNeedsGpu(), Frameworks: info.GetFrameworks(),
		MinMemory: info.GetMinMemory(), CanTrim: info.GetCanTrim(), Inputs: info.GetInputs(), OnlyInputs: info.GetOnlyInputs(), MaxWorkers: int(min(info.GetMaxWorkers(), math.MaxInt32)),
		GroupBy: info.GetGroupBy(), Concurrency: int(min(info.GetConcurrency(), math.MaxInt32)), ReadsFetched: info.GetReadsFetched(),
		NoDevice: info.GetNoDevice(), NeedsInputs: info.GetNeedsInputs(),
		RecordTimeout: time.Duration(min(info.GetRecordTimeoutMs(), math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond,
	}
	if out.Concurrency > 0 && out.MaxWorkers == 0 {
		out.MaxWorkers = 1 // more workers would only share what one can keep busy
	}
	return out
}

func packDevice(d Device) *kernelpb.Device {
	return &kernelpb.Device{
		Name: valid(d.Name), Index: int32(d.Index), Uuid: valid(d.UUID), Memory: d.Memory,
		Count: uint32(d.Count), Gpu: d.GPU, Threads: uint32(d.Threads),
	}
}

func unpackDevice(d *kernelpb.Device) Device {
	return Device{
		Name: d.GetName(), Index: int(d.GetIndex()), UUID: d.GetUuid(), Memory: d.GetMemory(),
		Count: int(d.GetCount()), GPU: d.GetGpu(), Threads: int(d.GetThreads()),
	}
}
