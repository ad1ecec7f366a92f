package view

import "slices"

// stripCells is how many cells the input is divided into.
const stripCells = 240

// Strip is the input in input order, in cells of Size records. The records of a cell that
// are neither done nor running are pending.
type Strip struct {
	Size int64 `json:"cell_records"`
	// Done includes Failed.
	Done    []int64 `json:"done"`
	Failed  []int64 `json:"failed"`
	Running []int64 `json:"running"`
}

// strip counts finished records by position.
type strip struct {
	size         int64
	done, failed [stripCells]int64
}

// fit makes room for records up to end; cells are merged in pairs as needed.
func (s *strip) fit(end int64) {
	s.size = max(s.size, 1)
	for end > s.size*stripCells {
		for i := range stripCells {
			var done, failed int64
			if 2*i+1 < stripCells {
				done, failed = s.done[2*i]+s.done[2*i+1], s.failed[2*i]+s.failed[2*i+1]
			}
			s.done[i], s.failed[i] = done, failed
		}
		s.size *= 2
	}
}

// total sets the size of cells for a known number of records, before any is counted.
func (s *strip) total(records int64) {
	if s.size == 0 && records > 0 {
		s.size = (records + stripCells - 1) / stripCells
	}
}

// add counts finished records; the failed ones are spread evenly over them, because an
// event does not say where they are.
func (s *strip) add(first, records, failed int64) {
	if first < 0 || records <= 0 {
		return
	}
	s.fit(first + records)
	spread(s.done[:], s.size, first, records)
	for i, end, left := first/s.size, first+records, failed; left > 0 && i*s.size < end; i++ {
		here := min(end, (i+1)*s.size) - max(first, i*s.size)
		share := min(left, (failed*here+records-1)/records)
		s.failed[i] += share
		left -= share
	}
}

// fail marks one finished record as failed.
func (s *strip) fail(at int64) {
	if at >= 0 && s.size > 0 && at/s.size < stripCells {
		s.failed[at/s.size]++
	}
}

// spread adds a run of records to the cells that it covers.
func spread(cells []int64, size, first, records int64) {
	for end := first + records; first >= 0 && first < end && first/size < int64(len(cells)); {
		next := min(end, (first/size+1)*size)
		cells[first/size] += next - first
		first = next
	}
}

// show returns the strip of total records (-1: unknown), which begin with number first,
// with the workers' chunks.
func (s *strip) show(total, first int64, workers []Worker) Strip {
	workers = slices.DeleteFunc(slices.Clone(workers), func(w Worker) bool { return !w.Phase.HasRecords() })
	for _, w := range workers {
		s.fit(w.First - first + w.Records)
	}
	s.fit(max(total, 0))
	shown := Strip{Size: s.size, Done: append([]int64{}, s.done[:]...), Failed: append([]int64{}, s.failed[:]...), Running: make([]int64, stripCells)}
	for _, w := range workers {
		done := min(w.Done, w.Records)
		spread(shown.Done, s.size, w.First-first, done)
		spread(shown.Running, s.size, w.First-first+done, w.Records-done)
	}
	if total >= 0 {
		used := (total + s.size - 1) / s.size
		shown.Done, shown.Failed, shown.Running = shown.Done[:used], shown.Failed[:used], shown.Running[:used]
	}
	return shown
}
