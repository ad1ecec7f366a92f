package worker

import (
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/plugins"
)

// storedRun returns the run of records from i on whose lines stay as they are and whose results
// are stored as values, as it is in memory. Record i is sent[next].
func storedRun(task *batchTask, lines *encoders, i, next int) (o commit.Outcome) {
	e, first := lines.all[0], task.verdict(next)
	if len(lines.ready) > 0 || first.results == nil || !e.rows.decided() {
		return o
	}
	e.prepare(first.results)
	if e.rows.direct == nil {
		return o
	}
	end := i
	for ; end < task.ready && task.refusal(end) == nil; end++ {
		at := end - i
		v := task.verdict(next + at)
		if v.fault != nil || v.results != first.results || v.index != first.index+at || v.results.At(v.index).Verdict != plugins.Columns {
			break
		}
		if !e.rows.free(task.places.of(next+at, e.rows.noted)) {
			break
		}
	}
	if o.Lines, o.Run = task.batch.Lines(i, end); o.Run > 0 {
		o.Values = e.rows.stored(first.index, o.Run)
	}
	return o
}
