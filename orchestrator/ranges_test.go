package orchestrator

import (
	"slices"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
)

func segmentAt(first, records, failed int64) chunk.Segment {
	return chunk.Segment{First: first, Tally: chunk.Tally{Counts: chunk.Counts{Records: records, Failed: failed}}}
}

func TestFinishedRanges(t *testing.T) {
	state := commit.State{
		Output:   []chunk.Segment{segmentAt(0, 10, 0), segmentAt(10, 10, 0), segmentAt(20, 5, 2)},
		Segments: []chunk.Segment{segmentAt(25, 5, 0), segmentAt(40, 5, 0)},
	}
	want := []Range{{0, 20, 0}, {20, 5, 2}, {25, 5, 0}, {40, 5, 0}}
	if got := finishedRanges(state); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// However many segments have failures, the event stays small, and no record is lost.
func TestFinishedRangesAreFew(t *testing.T) {
	var state commit.State
	const n = 100 * maxRanges
	for i := range int64(n) {
		state.Segments = append(state.Segments, segmentAt(3*i, 3, 1))
	}
	list := finishedRanges(state)
	if len(list) > maxRanges {
		t.Errorf("%d ranges, want at most %d", len(list), maxRanges)
	}
	var records, failed int64
	for _, r := range list {
		records, failed = records+r.Records, failed+r.Failed
	}
	if records != 3*n || failed != n {
		t.Errorf("%d records, %d failed, want %d and %d", records, failed, 3*n, n)
	}
}
