package kerneltest

import (
	"bytes"
	"context"
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

// compute runs one batch that the kernel must not fail as a whole.
func compute(ctx context.Context, k plugins.Kernel, records []string, what string) ([]answer, error) {
	results, err := plugins.Call(ctx, k, newBatch(records))
	if err != nil {
		return nil, processError(what, err)
	}
	return answers(results), nil
}

func processError(what string, err error) error {
	advice, how := RejectRecord, "failed"
	switch fault.KindOf(err) {
	case fault.Crash:
		advice, how = ProcessDied, "crashed the kernel"
	case fault.OOM:
		return fail(SmallerBatch, "%s: %w", what, err)
	}
	f := fail(advice, "%s %s: %w", what, how, err)
	f.Detail = detail(err)
	return f
}

func checkVerdicts(ctx context.Context, k plugins.Kernel, o Options) error {
	_, err := compute(ctx, k, o.Records, "the batch of sample records")
	return err
}

func checkUseful(ctx context.Context, k plugins.Kernel, o Options) error {
	got, err := compute(ctx, k, o.Records, "the batch of sample records")
	if err != nil {
		return err
	}
	for _, a := range got {
		if a.verdict != plugins.Failed {
			return nil
		}
	}
	return fail(OtherSamples,
		"the kernel rejected every sample record, the first with %q", got[0].message)
}

func checkValidJSON(ctx context.Context, k plugins.Kernel, o Options) error {
	for _, records := range [][]string{o.Records, unicodeRecords} {
		results, err := plugins.Call(ctx, k, newBatch(records))
		if err != nil {
			return processError("the batch", err)
		}
		for i, a := range answers(results) {
			for _, value := range a.values {
				if err := valid(value.json); err != nil {
					return fail(OneValue,
						"the result for %s is not valid JSON%s: %w: %s", short(records[i]), value.column(), err, short(value.json))
				}
			}
		}
	}
	return nil
}

func valid(text string) error {
	if strings.ContainsAny(text, "\n\r") {
		return fmt.Errorf("it contains a line break")
	}
	return (*jsonline.Wanted)(nil).Scan([]byte(text), &jsonline.Info{})
}

func checkBatchOfOne(ctx context.Context, k plugins.Kernel, o Options) error {
	for _, record := range o.Records {
		if _, err := compute(ctx, k, []string{record}, "a batch of one record"); err != nil {
			return err
		}
	}
	return nil
}

func checkRepeatable(ctx context.Context, k plugins.Kernel, o Options) error {
	first, err := compute(ctx, k, o.Records, "the batch of sample records")
	if err != nil {
		return err
	}
	second, err := compute(ctx, k, o.Records, "the same batch again")
	if err != nil {
		return err
	}
	return compare(o, o.Records, first, second, "the first time", "the second time", SeedByRecord)
}

func checkAlone(ctx context.Context, k plugins.Kernel, o Options) error {
	if o.Neighbors {
		return skipped("results may depend on neighbors")
	}
	together, err := compute(ctx, k, o.Records, "the batch of sample records")
	if err != nil {
		return err
	}
	var alone []answer
	for _, record := range o.Records {
		one, err := compute(ctx, k, []string{record}, "a batch of one record")
		if err != nil {
			return err
		}
		alone = append(alone, one...)
	}
	return compare(o, o.Records, together, alone, "in a batch", "alone", RecordAlone)
}

func checkOrder(ctx context.Context, k plugins.Kernel, o Options) error {
	if o.Neighbors {
		return skipped("results may depend on neighbors")
	}
	forward, err := compute(ctx, k, o.Records, "the batch of sample records")
	if err != nil {
		return err
	}
	reversed := slices.Clone(o.Records)
	slices.Reverse(reversed)
	backward, err := compute(ctx, k, reversed, "the batch of sample records, reversed")
	if err != nil {
		return err
	}
	slices.Reverse(backward)
	return compare(o, o.Records, forward, backward, "in order", "in the reversed batch", RestoreOrder, RecordAlone)
}

func checkLargeBatch(ctx context.Context, k plugins.Kernel, o Options) error {
	records := make([]string, o.LargeBatch)
	for i := range records {
		records[i] = o.Records[i%len(o.Records)]
	}
	got, err := compute(ctx, k, records, fmt.Sprintf("a batch of %d records", len(records)))
	if err != nil || o.Neighbors {
		return err
	}
	small, err := compute(ctx, k, o.Records, "the batch of sample records")
	if err != nil {
		return err
	}
	expected := make([]answer, len(got))
	for i := range expected {
		expected[i] = small[i%len(small)]
	}
	return compare(o, records, expected, got, "in a small batch", "in a large batch", RecordAlone)
}

// unicodeRecords are all valid JSON.
var unicodeRecords = []string{
	`{"id":1,"text":"Grüße, привет, 你好, こんにちは, مرحبا, שלום, नमस्ते"}`,
	`{"id":2,"text":"👩‍🚀👍🏽 and \ud83d\ude80, e\u0301 and \u00e9, \u200b zero width"}`,
	`{"id":3,"text":"\"quoted\" \\ \/ \b\f\n\r\t \u0000 \u001f \u2028 \u2029 \u007f"}`,
	`{"id":4,"text":"a lone surrogate: \ud800"}`,
	`{"id":5,"text":"` + "\u2028\u2029\ufeff\U0010FFFF" + `"}`,
	`{"id":6,"téxt ключ":"a key in other letters","text":"e"}`,
}

func checkUnicode(ctx context.Context, k plugins.Kernel, o Options) error {
	if _, err := compute(ctx, k, unicodeRecords, "a batch of text in many scripts"); err != nil {
		return err
	}
	return stillWorks(ctx, k, o, "after text in many scripts")
}

// largeRecord returns a record with a megabyte of words.
func largeRecord() string {
	return `{"id":1,"text":"` + strings.Repeat("large record ", 1<<20/13) + `"}`
}

func checkLargeRecord(ctx context.Context, k plugins.Kernel, o Options) error {
	if err := survives(ctx, k, largeRecord()); err != nil {
		return err
	}
	return stillWorks(ctx, k, o, "after a record of a megabyte")
}

// oddRecords have unusual shapes, but are valid records to gpurun.
var oddRecords = []string{
	`{}`, `[]`, `null`, `true`, `0`, `-1.5e300`, `""`, `"a string"`, `[1,[2,[3]]]`,
	`{"id":null,"text":null}`, `{"id":{},"text":[]}`, `{"id":"one","text":1}`, `{"text":"twice","text":"the same member"}`,
	`{"":""}`, `{"n":123456789012345678901234567890}`, `{"deep":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
}

func checkOddRecords(ctx context.Context, k plugins.Kernel, o Options) error {
	for _, record := range oddRecords {
		if err := survives(ctx, k, record); err != nil {
			return err
		}
	}
	return stillWorks(ctx, k, o, "after records of odd shapes")
}

// survives sends the kernel one record, which it may reject in any way except by
// crashing.
func survives(ctx context.Context, k plugins.Kernel, record string) error {
	_, err := plugins.Call(ctx, k, newBatch([]string{record}))
	if ctx.Err() != nil || fault.KindOf(err) == fault.Crash {
		return processError("the record "+short(record), err)
	}
	return nil
}

func stillWorks(ctx context.Context, k plugins.Kernel, o Options, when string) error {
	_, err := compute(ctx, k, o.Records, "the batch of sample records "+when)
	return err
}

func checkMemory(ctx context.Context, k plugins.Kernel, o Options) error {
	batch := newBatch(o.Records)
	results, err := plugins.Call(ctx, k, batch)
	if err != nil {
		return processError("the batch of sample records", err)
	}
	first := answers(results)
	for i, record := range o.Records {
		if !bytes.Equal(batch.Record(i), []byte(record)) {
			return fail(CopyToChange,
				"the kernel changed the record %s to %s", short(record), short(string(batch.Record(i))))
		}
		for j := range batch.Record(i) {
			batch.Record(i)[j] = 'x' // as the caller may, once the results are complete
		}
	}
	second, err := compute(ctx, k, o.Records, "the same batch again")
	if err != nil || o.Neighbors {
		return err
	}
	return compare(o, o.Records, first, second, "the first time", "after the memory of the first batch was reused", CopyToKeep)
}

func checkInFlight(ctx context.Context, k plugins.Kernel, o Options) error {
	info, err := k.Describe(ctx, o.Config)
	if err != nil {
		return describeError(err)
	}
	if info.InFlight <= 1 {
		return skipped("the kernel has one batch in flight at a time")
	}
	open := make([]*plugins.Results, info.InFlight)
	for i := range open {
		open[i] = plugins.Submit(ctx, k, newBatch(o.Records[i%len(o.Records):]))
	}
	// When the last batch is complete, all earlier ones must be.
	last := open[len(open)-1]
	if err := last.Wait(ctx); err != nil {
		return processError(fmt.Sprintf("the last of %d batches in flight", len(open)), err)
	}
	for i, results := range open {
		select {
		case <-results.Done():
		default:
			return fail(FinishInOrder,
				"batch %d of %d in flight was completed before batch %d", len(open), len(open), i+1)
		}
		if err := results.Wait(ctx); err != nil {
			return processError(fmt.Sprintf("batch %d of %d in flight", i+1, len(open)), err)
		}
	}
	return nil
}
