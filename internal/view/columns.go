package view

import "time"

// History is the course of a job in columns, one entry per point of time, oldest first. A
// value that was unknown is null; between two runs of the job, all are.
type History struct {
	Interval float64   `json:"interval_seconds"`
	Time     []float64 `json:"time"` // Unix seconds
	Done     []*int64  `json:"done"`
	Failed   []*int64  `json:"failed"`
	// Rate is in records per second since the point before, or in the last 5 s.
	Rate    []*float64      `json:"records_per_second"`
	Devices []DeviceHistory `json:"devices"`
}

// DeviceHistory is the course of one device.
type DeviceHistory struct {
	Device      string     `json:"device"`
	Rate        []*float64 `json:"records_per_second"`
	Pace        []*float64 `json:"pace"`
	Temperature []*float64 `json:"temperature_c"`
	Utilization []*float64 `json:"utilization_percent"`
	Memory      []*float64 `json:"memory_used_bytes"`
	Power       []*float64 `json:"power_w"`
}

// show returns the columns.
func (h *history) show() History {
	n := len(h.points)
	shown := History{
		Interval: max(h.interval, time.Second).Seconds(), Devices: make([]DeviceHistory, len(h.names)),
		Time: make([]float64, n), Done: make([]*int64, n), Failed: make([]*int64, n), Rate: make([]*float64, n),
	}
	for d, name := range h.names {
		column := func() []*float64 { return make([]*float64, n) }
		shown.Devices[d] = DeviceHistory{name, column(), column(), column(), column(), column(), column()}
	}
	for i, p := range h.points {
		shown.Time[i] = float64(p.Time) / 1000
		if p.Gap {
			continue
		}
		before := h.earlier(i)
		elapsed := p.at().Sub(before.at())
		shown.Done[i], shown.Failed[i], shown.Rate[i] = &p.Done, &p.Failed, new(rate(p.Done-before.Done, elapsed))
		for d := range shown.Devices {
			column, now, then := &shown.Devices[d], p.device(d), before.device(d)
			column.Pace[i], column.Temperature[i], column.Utilization[i], column.Memory[i], column.Power[i] = now[1], now[2], now[3], now[4], now[5]
			if now[0] == nil {
				continue // it was not there
			}
			if then[0] == nil {
				then = now
			}
			column.Rate[i] = new(rate(int64(*now[0]-*then[0]), elapsed))
		}
	}
	return shown
}

// smoothTime is what a rate looks back at least: results come in batches.
const smoothTime = 5 * time.Second

// earlier returns the point that a rate at i is measured from.
func (h *history) earlier(i int) point {
	first := i
	for first > 0 && !h.points[first-1].Gap && h.points[i].at().Sub(h.points[first].at()) < smoothTime {
		first--
	}
	return h.points[first]
}
