package worker

import (
	"iter"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// batchTask is one batch on its way from the reader through the kernel to the writer.
type batchTask struct {
	lane  *lane // of the batch's chunk
	batch *input.Batch
	// group is what the batch is a part of, or all of. In a window, at are the positions of its
	// records, costs what they cost.
	group *group
	at    []int
	costs []int
	// refused holds, for each record, why it is not sent to the kernel. Records with a nil
	// entry are sent; if refused is nil, all are. Records that failed upstream are refused
	// with kind Upstream.
	refused []*fault.Error
	// sent are the positions in batch of the records sent to the kernel.
	sent []int
	// ready is how many records of batch go to the writer; the rest is not computed.
	ready   int
	records [][]byte
	// spans holds the position of each input in each of records.
	inputs []string
	spans  []uint32
	// files are those that were fetched for each of records, under the names in fetched.
	fetched []string
	files   [][]byte
	// pending are the files of each of records, if the records are passed on before their
	// files have arrived.
	pending []*fetchRecord
	load    load // of records
	// isolation is how long the kernel could isolate bad records when it got the whole batch.
	isolation time.Duration
	took      time.Duration    // how long the device took for the batch
	batches   []time.Duration  // the same for each batch of a group
	results   *plugins.Results // of the batch as a whole
	// verdicts are the verdicts on sent if the batch was isolated or grouped; nil: they are
	// in results.
	verdicts []verdict
}

// verdict locates a record's result, or says why the record failed.
type verdict struct {
	results *plugins.Results
	index   int
	fault   *fault.Error
}

// toCompute returns the records sent[lo:hi] as a batch.
func (t *batchTask) toCompute(lo, hi int) plugins.Batch {
	each := 2 * len(t.inputs)
	batch := plugins.NewBatch(t.records[lo:hi]).WithInputs(t.inputs, t.spans[lo*each:hi*each])
	if len(t.fetched) == 0 {
		return batch
	}
	return batch.WithFetched(t.fetched, t.filesOf(lo, hi))
}

// pick returns the records at these positions of sent as a batch of their own.
func (t *batchTask) pick(at []int) *batchTask {
	each := 2 * len(t.inputs)
	picked := &batchTask{lane: t.lane, batch: t.batch, group: t.group, at: at, inputs: t.inputs, fetched: t.fetched, spans: make([]uint32, 0, each*len(at))}
	for _, i := range at {
		picked.sent, picked.records = append(picked.sent, t.sent[i]), append(picked.records, t.records[i])
		picked.spans = append(picked.spans, t.spans[i*each:(i+1)*each]...)
		picked.files = append(picked.files, t.filesOf(i, i+1)...)
		if t.costs != nil {
			picked.costs = append(picked.costs, t.costs[i])
		}
	}
	return picked
}

// filesOf returns the files of the records sent[lo:hi].
func (t *batchTask) filesOf(lo, hi int) [][]byte {
	return t.files[lo*len(t.fetched) : hi*len(t.fetched)]
}

// size returns the bytes of a record sent and of its files.
func (t *batchTask) size(i int) int {
	size := len(t.records[i])
	for _, file := range t.filesOf(i, i+1) {
		size += len(file)
	}
	return size
}

// loadOf returns the load of the records sent[lo:hi].
func (t *batchTask) loadOf(lo, hi int) load {
	l := load{records: hi - lo}
	for i := lo; i < hi; i++ {
		l.bytes += t.size(i)
	}
	if t.costs != nil {
		l.cost = padded(t.costs[lo:hi])
	}
	return l
}

// good records that the kernel has computed the batch at the first attempt.
func (t *batchTask) good(took time.Duration) {
	for _, cost := range t.costs {
		t.lane.out.stats.Cost += int64(cost)
	}
	t.lane.out.stats.Padded += t.load.cost
	t.lane.worker.sizes.good(t.load)
	t.group.good(took)
}

// isolated records that the kernel has isolated bad records itself, from record lo on. How long that
// took says nothing about other batches.
func (t *batchTask) isolated(w *Worker, lo int, results *plugins.Results, took time.Duration) {
	w.host.warmUp(took)
	for i := range results.Len() {
		if failure := fault.As(results.At(i).Raised); failure != nil {
			line := t.batch.Records[t.sent[lo+i]].Line
			w.log.Warn("record failed", "line", line, "kind", failure.Kind, "error", failure.Message)
		}
	}
}

// verdict returns the verdict on record i of those sent, once it is known.
func (t *batchTask) verdict(i int) verdict {
	if t.verdicts != nil {
		return t.verdicts[i]
	}
	return verdict{results: t.results, index: i}
}

// refusal returns why record i of the batch was not sent to the kernel, or nil if it was.
func (t *batchTask) refusal(i int) *fault.Error {
	if t.refused == nil {
		return nil
	}
	return t.refused[i]
}

// position returns where record i of a batch is in the group.
func (t *batchTask) position(i int) int {
	if t == t.group.task {
		return i
	}
	return t.at[i]
}

// failures yields the failure of each record that the kernel got, nil for a success.
func (t *batchTask) failures() iter.Seq[*fault.Error] {
	return func(yield func(*fault.Error) bool) {
		for i := range t.sent {
			v := t.verdict(i)
			failure := v.fault
			if failure == nil && v.results != nil {
				if result := v.results.At(v.index); result.Verdict == plugins.Failed {
					failure = rejected(result)
				}
			}
			if !yield(failure) {
				return
			}
		}
	}
}
