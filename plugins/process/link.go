package process

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// link is what the streams of batches and of records have in common: the connection, and what the
// kernel process has told of itself.
type link struct {
	rpc kernelpb.KernelClient
	// explain turns a transport error into its cause: why the process on the other side
	// exited. It may wait for that cause.
	explain func(error) error
	fail    func(error)     // completes everything in flight
	arena   *protocol.Arena // nil if there is none
	mps     bool            // see Command

	mu     sync.Mutex // guards what follows, batches and asking
	broken error      // why nothing more can be sent
	closed bool       // by Close
	onCPU  bool       // the device passed to Open is a CPU
	shared bool       // the kernel process has mapped the arena
	inputs []string
	told   plugins.Report // so far
}

// unpackComputing is unpackFailure for the two calls that use the device. A kernel in
// another language sends its failures unclassified, so their texts are classified here.
func (l *link) unpackComputing(failure []byte, kind fault.Kind) error {
	e := parseFailure(failure)
	if e == nil {
		return nil
	}
	return l.fromOutside(fault.As(symptom.Classify(kind, e, l.isOnCPU())).Bounded())
}

// fromOutside returns the failure of a process that may have lost its context by the fault of
// another as one from outside.
func (l *link) fromOutside(e *fault.Error) *fault.Error {
	if l.mps && e.Sign == fault.Context {
		return e.Signed(fault.Outside)
	}
	return e
}

func (l *link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *link) isOnCPU() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onCPU
}

// sharedArena returns the arena once the kernel process is known to have mapped it.
func (l *link) sharedArena() *protocol.Arena {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared {
		return l.arena
	}
	return nil
}

// makesUnfit reports whether later batches of the same process would fail too: its context
// on the device is lost, or it has used up the host's memory.
func makesUnfit(err error) bool {
	e := fault.As(err)
	return e != nil && (e.Kind == fault.Crash || e.Sign == fault.HostMemory)
}

// markUnfit declares a running process unfit for further batches: they would fail because
// of the process and not because of their records. The owner of the process must end it.
// The mark must be set before the batch is completed, because the owner then checks
// Broken.
func (l *link) markUnfit(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// addReport adds what the kernel process reports about itself with a reply.
func (l *link) addReport(data []byte) {
	var news plugins.Report
	if len(data) == 0 || json.Unmarshal(data, &news) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.Sources = append(l.told.Sources, news.Sources...)
	l.told.Warnings = append(l.told.Warnings, news.Warnings...)
	if news.Memory != (plugins.FrameworkMemory{}) {
		l.told.Memory = news.Memory
	}
	if news.Imports.Took > 0 {
		l.told.Imports = news.Imports
	}
}

// pack describes records: their lines, the members that the worker has located in them and their
// files. It does not copy what is already in the arena. at returns a record.
func (l *link) pack(c *protocol.Carrier, lines [][]byte, at func(i int) plugins.Record) (records *kernelpb.Block, spans []uint32, files []*kernelpb.Fetched) {
	for _, name := range at(0).FetchedNames() {
		each := make([][]byte, len(lines))
		var nulls []uint32
		for i := range each {
			if each[i], _ = at(i).Fetched(name); each[i] == nil {
				nulls = append(nulls, uint32(i))
			}
		}
		files = append(files, &kernelpb.Fetched{Name: strings.ToValidUTF8(name, "\uFFFD"), Files: protocol.PackShared(c, each), Nulls: nulls})
	}
	return protocol.PackShared(c, lines), l.spansOf(len(lines), at), files
}

// spansOf returns where the members that the kernel reads are, or nil if they are not located in
// all records.
func (l *link) spansOf(n int, at func(i int) plugins.Record) (spans []uint32) {
	l.mu.Lock()
	inputs := l.inputs
	l.mu.Unlock()
	for i := range n {
		names, located := at(i).Located()
		if len(names) == 0 || !slices.Equal(names, inputs) {
			return nil
		}
		spans = append(spans, located...)
	}
	return spans
}
