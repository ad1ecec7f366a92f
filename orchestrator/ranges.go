package orchestrator

import (
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
)

// Range is a run of finished records in input order.
type Range struct {
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	// Failed of them have failed.
	Failed int64 `json:"failed"`
}

// maxRanges limits how precisely ranges locate failed records: a job may have millions of
// segments.
const maxRanges = 1000

// finishedRanges returns what a journal holds results for. Neighbors without a failed
// record are one range; if there are too many ranges, so are small neighbors.
func finishedRanges(s commit.State) []Range {
	segments := slices.Concat(s.Output, s.Segments)
	list := joinRanges(segments, 0)
	if len(list) > maxRanges {
		list = joinRanges(segments, 2*s.Done()/maxRanges)
	}
	return list
}

// joinRanges makes ranges of segments in order. A range of fewer than least records takes
// in the segment that follows it.
func joinRanges(segments []chunk.Segment, least int64) (list []Range) {
	for _, s := range segments {
		next := Range{First: s.First, Records: s.Tally.Records, Failed: s.Tally.Failed}
		if n := len(list); n > 0 && list[n-1].joins(next, least) {
			list[n-1].Records += next.Records
			list[n-1].Failed += next.Failed
			continue
		}
		list = append(list, next)
	}
	return list
}

func (r Range) joins(next Range, least int64) bool {
	return r.First+r.Records == next.First && (r.Failed+next.Failed == 0 || r.Records < least)
}
