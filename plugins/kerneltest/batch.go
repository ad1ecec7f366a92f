package kerneltest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// newBatch copies the records, so that no two checks share memory.
func newBatch(records []string) plugins.Batch {
	list := make([][]byte, len(records))
	for i, record := range records {
		list[i] = []byte(record)
	}
	return plugins.NewBatch(list)
}

// call runs one batch that the kernel must not fail as a whole.
func (t trial) call(batch plugins.Batch, what string) *plugins.Results {
	results, err := plugins.Call(t.ctx, t.kernel, batch)
	if err != nil {
		t.failBatch(what, err)
	}
	return results
}

func (t trial) compute(records []string, what string) []answer {
	return answers(t.call(newBatch(records), what))
}

// samples computes the sample records; when says which time that is.
func (t trial) samples(when string) []answer {
	return t.compute(t.Records, strings.TrimSpace("the batch of sample records "+when))
}

func (t trial) failBatch(what string, err error) {
	switch fault.KindOf(err) {
	case fault.Crash:
		t.fail(ProcessDied, "%s crashed the kernel: %w", what, err)
	case fault.OOM:
		t.fail(SmallerBatch, "%s: %w", what, err)
	}
	t.fail(RejectRecord, "%s failed: %w", what, err)
}

func checkVerdicts(t trial) { t.samples("") }

func checkUseful(t trial) {
	got := t.samples("")
	if !slices.ContainsFunc(got, func(a answer) bool { return a.verdict != plugins.Failed }) {
		t.fail(OtherSamples, "the kernel rejected every sample record, the first with %q", got[0].message)
	}
}

func checkValidJSON(t trial) {
	for _, records := range [][]string{t.Records, unicodeRecords} {
		for i, a := range t.compute(records, "the batch") {
			for _, value := range a.values {
				if err := valid(value.json); err != nil {
					t.fail(OneValue, "the result for %s is not valid JSON%s: %w: %s", short(records[i]), value.column(), err, short(value.json))
				}
			}
		}
	}
}

func valid(text string) error {
	if strings.ContainsAny(text, "\n\r") {
		return fmt.Errorf("it contains a line break")
	}
	return (*jsonline.Wanted)(nil).Scan([]byte(text), &jsonline.Info{})
}

func checkBatchOfOne(t trial) {
	for _, record := range t.Records {
		t.compute([]string{record}, "a batch of one record")
	}
}

func checkRepeatable(t trial) {
	first, second := t.samples(""), t.samples("again")
	t.compare(t.Records, first, second, "the first time", "the second time", SeedByRecord)
}

// needsIndependence skips checks for which results must not depend on neighbors.
func (t trial) needsIndependence() {
	if t.Neighbors {
		t.skip("results may depend on neighbors")
	}
}

func checkAlone(t trial) {
	t.needsIndependence()
	together := t.samples("")
	var alone []answer
	for _, record := range t.Records {
		alone = append(alone, t.compute([]string{record}, "a batch of one record")...)
	}
	t.compare(t.Records, together, alone, "in a batch", "alone", RecordAlone)
}

func checkOrder(t trial) {
	t.needsIndependence()
	forward := t.samples("")
	reversed := slices.Clone(t.Records)
	slices.Reverse(reversed)
	backward := t.compute(reversed, "the batch of sample records, reversed")
	slices.Reverse(backward)
	t.compare(t.Records, forward, backward, "in order", "in the reversed batch", RestoreOrder, RecordAlone)
}

func checkLargeBatch(t trial) {
	records := repeated(t.Records, t.LargeBatch)
	got := t.compute(records, fmt.Sprintf("a batch of %d records", len(records)))
	if t.Neighbors {
		return
	}
	t.compare(records, repeated(t.samples(""), len(got)), got, "in a small batch", "in a large batch", RecordAlone)
}

// repeated returns n items, the list again and again.
func repeated[T any](list []T, n int) []T { return slices.Repeat(list, n/len(list)+1)[:n] }

// unicodeRecords are all valid JSON.
var unicodeRecords = []string{
	`{"id":1,"text":"Grüße, привет, 你好, こんにちは, مرحبا, שלום, नमस्ते"}`,
	`{"id":2,"text":"👩‍🚀👍🏽 and \ud83d\ude80, e\u0301 and \u00e9, \u200b zero width"}`,
	`{"id":3,"text":"\"quoted\" \\ \/ \b\f\n\r\t \u0000 \u001f \u2028 \u2029 \u007f"}`,
	`{"id":4,"text":"a lone surrogate: \ud800"}`,
	`{"id":5,"text":"` + "\u2028\u2029\ufeff\U0010FFFF" + `"}`,
	`{"id":6,"téxt ключ":"a key in other letters","text":"e"}`,
}

func checkUnicode(t trial) {
	t.compute(unicodeRecords, "a batch of text in many scripts")
	t.samples("after text in many scripts")
}

// largeRecord returns a record with a megabyte of words.
func largeRecord() string {
	return `{"id":1,"text":"` + strings.Repeat("large record ", 1<<20/13) + `"}`
}

func checkLargeRecord(t trial) {
	t.survive(largeRecord())
	t.samples("after a record of a megabyte")
}

// oddRecords have unusual shapes, but are valid records to gpurun.
var oddRecords = []string{
	`{}`, `[]`, `null`, `true`, `0`, `-1.5e300`, `""`, `"a string"`, `[1,[2,[3]]]`,
	`{"id":null,"text":null}`, `{"id":{},"text":[]}`, `{"id":"one","text":1}`, `{"text":"twice","text":"the same member"}`,
	`{"":""}`, `{"n":123456789012345678901234567890}`, `{"deep":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
}

func checkOddRecords(t trial) {
	for _, record := range oddRecords {
		t.survive(record)
	}
	t.samples("after records of odd shapes")
}

// survive sends the kernel one record, which it may reject in any way except by crashing.
func (t trial) survive(record string) {
	_, err := plugins.Call(t.ctx, t.kernel, newBatch([]string{record}))
	if t.ctx.Err() != nil || fault.KindOf(err) == fault.Crash {
		t.failBatch("the record "+short(record), err)
	}
}

func checkMemory(t trial) {
	batch := newBatch(t.Records)
	first := answers(t.call(batch, "the batch of sample records"))
	for i, record := range t.Records {
		if !bytes.Equal(batch.Record(i), []byte(record)) {
			t.fail(CopyToChange, "the kernel changed the record %s to %s", short(record), short(string(batch.Record(i))))
		}
		for j := range batch.Record(i) {
			batch.Record(i)[j] = 'x' // as the caller may, once the results are complete
		}
	}
	second := t.samples("again")
	if !t.Neighbors {
		t.compare(t.Records, first, second, "the first time", "after the memory of the first batch was reused", CopyToKeep)
	}
}

func checkInFlight(t trial) {
	n := t.describe().InFlight
	if n <= 1 {
		t.skip("the kernel has one batch in flight at a time")
	}
	open := make([]*plugins.Results, n)
	for i := range open {
		open[i] = plugins.Submit(t.ctx, t.kernel, newBatch(t.Records[i%len(t.Records):]))
	}
	// When the last batch is complete, all earlier ones must be.
	if err := open[n-1].Wait(t.ctx); err != nil {
		t.failBatch(fmt.Sprintf("the last of %d batches in flight", n), err)
	}
	for i, results := range open {
		select {
		case <-results.Done():
		default:
			t.fail(FinishInOrder, "batch %d of %d in flight was completed before batch %d", n, n, i+1)
		}
		if err := results.Wait(t.ctx); err != nil {
			t.failBatch(fmt.Sprintf("batch %d of %d in flight", i+1, n), err)
		}
	}
}
