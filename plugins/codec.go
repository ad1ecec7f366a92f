package plugins

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// The messages of kernel.proto and the values of this package, in both
// directions. What comes from the other process is checked here, before anyone
// uses it as an index.

func packBlock(items [][]byte) *kernelpb.Block {
	total := 0
	lengths := make([]uint32, len(items))
	for i, item := range items {
		lengths[i] = uint32(len(item))
		total += len(item)
	}
	inline := make([]byte, 0, total)
	for _, item := range items {
		inline = append(inline, item...)
	}
	return &kernelpb.Block{Inline: inline, Lengths: lengths}
}

func unpackBlock(block *kernelpb.Block) ([][]byte, error) {
	data := block.GetInline()
	items := make([][]byte, len(block.GetLengths()))
	for i, length := range block.GetLengths() {
		if uint64(length) > uint64(len(data)) {
			return nil, fmt.Errorf("item %d of a block ends behind its bytes", i)
		}
		items[i], data = data[:length:length], data[length:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("a block has %d bytes more than its items", len(data))
	}
	return items, nil
}

func packFailure(err error) *kernelpb.Failure {
	if err == nil {
		return nil
	}
	failure := &kernelpb.Failure{Kind: uint32(fault.KindOf(err)), Message: valid(err.Error())}
	if e := fault.As(err); e != nil {
		failure.Detail = valid(e.Detail)
	}
	return failure
}

// valid makes s a string of protobuf's, which must be UTF-8: a message that
// quotes a record's bytes would break the connection otherwise.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// unpackFailure classifies what the kernel left unclassified, or what this
// version does not know, as kind.
func unpackFailure(failure *kernelpb.Failure, kind fault.Kind) error {
	if failure == nil {
		return nil
	}
	if k := fault.Kind(failure.GetKind()); k != fault.Unknown && k.Known() && failure.GetKind() <= math.MaxUint8 {
		kind = k
	}
	return &fault.Error{Kind: kind, Message: failure.GetMessage(), Detail: failure.GetDetail()}
}

func packReply(sequence uint64, r *Results) *kernelpb.ProcessReply {
	reply := &kernelpb.ProcessReply{Sequence: sequence, Verdicts: make([]byte, len(r.results))}
	var lines [][]byte
	for i, result := range r.results {
		reply.Verdicts[i] = byte(result.Verdict)
		switch result.Verdict {
		case Lines:
			lines = append(lines, result.Lines...)
			reply.LineCounts = append(reply.LineCounts, uint32(len(result.Lines)))
		case Failed:
			reply.Messages = append(reply.Messages, valid(result.Message))
		}
	}
	if lines != nil {
		reply.Lines = packBlock(lines)
	}
	for _, c := range r.columns {
		reply.Columns = append(reply.Columns, packColumn(c))
	}
	return reply
}

// unpackReply fills r from the other side's reply. Its error says in which way
// the reply makes no sense.
func unpackReply(reply *kernelpb.ProcessReply, r *Results) error {
	if len(reply.GetVerdicts()) != len(r.results) {
		return fmt.Errorf("kernel returned %s for a batch of %d",
			plural(len(reply.GetVerdicts()), "result"), len(r.results))
	}
	lines, err := unpackBlock(reply.GetLines())
	if err != nil {
		return err
	}
	counts, messages := reply.GetLineCounts(), reply.GetMessages()
	for i, verdict := range reply.GetVerdicts() {
		result := Result{Verdict: Verdict(verdict)}
		switch result.Verdict {
		case Lines:
			if len(counts) == 0 || counts[0] == 0 || uint64(counts[0]) > uint64(len(lines)) {
				return fmt.Errorf("kernel returned fewer lines than it announced")
			}
			n := counts[0]
			result.Lines, lines, counts = lines[:n:n], lines[n:], counts[1:]
		case Failed:
			if len(messages) == 0 {
				return fmt.Errorf("kernel returned fewer messages than failed records")
			}
			result.Message, messages = messages[0], messages[1:]
		case Unchanged, Columns, Dropped:
		default:
			return fmt.Errorf("kernel gave record %d of the batch %s", i, result.Verdict)
		}
		r.results[i] = result
	}
	if len(lines) > 0 || len(counts) > 0 || len(messages) > 0 {
		return fmt.Errorf("kernel returned more lines or messages than belong to its verdicts")
	}
	return unpackColumns(reply.GetColumns(), r)
}

func unpackColumns(columns []*kernelpb.Column, r *Results) error {
	for _, message := range columns {
		c, err := unpackColumn(message)
		if err != nil {
			return err
		}
		r.Column(c)
	}
	if r.misuse != nil {
		return r.misuse
	}
	for i := range r.results {
		if r.results[i].Verdict == Columns && len(r.columns) == 0 {
			return fmt.Errorf("kernel gave record %d of the batch columns, and no column", i)
		}
	}
	return nil
}

func packColumn(c Column) *kernelpb.Column {
	message := &kernelpb.Column{Name: valid(c.Name), Width: uint32(max(c.Width, 0))}
	switch v := c.values.(type) {
	case []float32:
		message.Values = &kernelpb.Column_Float32S{Float32S: packNumbers(v)}
	case []float64:
		message.Values = &kernelpb.Column_Float64S{Float64S: packNumbers(v)}
	case []int64:
		message.Values = &kernelpb.Column_Int64S{Int64S: packNumbers(v)}
	case []bool:
		message.Values = &kernelpb.Column_Bools{Bools: packNumbers(v)}
	case []string:
		items := make([][]byte, len(v))
		for i, s := range v {
			items[i] = []byte(s)
		}
		message.Values = &kernelpb.Column_Strings{Strings: packBlock(items)}
	case jsonValues:
		message.Values = &kernelpb.Column_Json{Json: packBlock(v)}
	}
	return message
}

func unpackColumn(message *kernelpb.Column) (Column, error) {
	c := Column{Name: message.GetName(), Width: int(message.GetWidth())}
	var err error
	switch v := message.GetValues().(type) {
	case *kernelpb.Column_Float32S:
		c.values, err = unpackNumbers[float32](v.Float32S, 4)
	case *kernelpb.Column_Float64S:
		c.values, err = unpackNumbers[float64](v.Float64S, 8)
	case *kernelpb.Column_Int64S:
		c.values, err = unpackNumbers[int64](v.Int64S, 8)
	case *kernelpb.Column_Bools:
		c.values, err = unpackNumbers[bool](v.Bools, 1)
	case *kernelpb.Column_Strings:
		var items [][]byte
		items, err = unpackBlock(v.Strings)
		values := make([]string, len(items))
		for i, item := range items {
			values[i] = string(item)
		}
		c.values = values
	case *kernelpb.Column_Json:
		var items [][]byte
		items, err = unpackBlock(v.Json)
		c.values = jsonValues(items)
	default:
		err = fmt.Errorf("it has no values this version knows")
	}
	if err == nil && (message.GetName() == "" || message.GetWidth() > math.MaxInt32) {
		err = fmt.Errorf("name or width make no sense")
	}
	if err != nil {
		return c, fmt.Errorf("kernel returned column %q: %w", message.GetName(), err)
	}
	return c, nil
}

func packNumbers[T any](values []T) []byte {
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err) // only types of a fixed size come here
	}
	return data
}

func unpackNumbers[T any](data []byte, size int) ([]T, error) {
	if len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of values", len(data))
	}
	values := make([]T, len(data)/size)
	_, err := binary.Decode(data, binary.LittleEndian, values)
	return values, err
}

func packInfo(info Info) *kernelpb.Info {
	frameworks := make([]string, len(info.Frameworks))
	for i, name := range info.Frameworks {
		frameworks[i] = valid(name)
	}
	return &kernelpb.Info{
		Name: valid(info.Name), Version: valid(info.Version),
		BatchSize: uint32(min(max(info.BatchSize, 0), math.MaxInt32)), InFlight: uint32(inFlight(info)),
		NeedsGpu: info.NeedsGPU, Frameworks: frameworks,
		MinMemory: info.MinMemory, CanTrim: info.CanTrim,
	}
}

// maxInFlight bounds what a kernel can make both sides hold at a time.
const maxInFlight = 64

func inFlight(info Info) int { return min(max(info.InFlight, 0), maxInFlight) }

func unpackInfo(info *kernelpb.Info) Info {
	return Info{
		Name: info.GetName(), Version: info.GetVersion(),
		BatchSize: int(min(info.GetBatchSize(), math.MaxInt32)), InFlight: int(min(info.GetInFlight(), maxInFlight)),
		NeedsGPU: info.GetNeedsGpu(), Frameworks: info.GetFrameworks(),
		MinMemory: info.GetMinMemory(), CanTrim: info.GetCanTrim(),
	}
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
