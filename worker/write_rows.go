package worker

import "github.com/gpurun/gpurun/plugins"

// store writes the records from i on whose lines stay as they are and whose results are
// stored as values: a run of them at a time, as it is in memory. Record i is sent[next]. n is
// their number, 0 if record i is not one of them.
func (p *partWriter) store(task *batchTask, lines *encoders, i, next int) (n int, err error) {
	if !p.stores || len(lines.ready) > 0 || task.refusal(i) != nil {
		return 0, nil
	}
	e, first := lines.all[0], task.verdict(next)
	if first.results == nil || e.rows == nil || e.rows.layout == nil {
		return 0, nil
	}
	e.prepareRows(first.results)
	if e.rows.direct == nil {
		return 0, nil
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
	text, n := task.batch.Lines(i, end)
	if n == 0 {
		return 0, nil
	}
	return n, p.part.SucceedStored(text, n, e.rows.stored(first.index, n))
}
