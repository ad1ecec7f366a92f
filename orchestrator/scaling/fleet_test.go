package scaling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// fleet simulates the workers of one device: how fast they are together, how long they
// load, what memory they take, noise, and that only whole batches are counted.
type fleet struct {
	rate  func(workers float64) float64 // records per second of that many workers
	busy  func(workers float64) float64 // of the GPU; nil: unknown
	cores float64
	each  float64 // cores that a worker uses; 0: none
	limit int
	first time.Duration              // how long the first worker loads beyond load
	load  time.Duration              // how long one more loads
	cold  time.Duration              // how long the first batch of each takes longer than others
	noise float64                    // of the rate in two seconds, a share
	batch float64                    // records per batch
	size  func(done float64) float64 // bytes of a record; nil: 1000

	memory, used uint64 // device memory: total, and of each worker

	work float64 // records of the job
	seed uint64
}

// tick is how often a search gets figures, sampling after which time of a new number of workers the GPU
// is looked at, crowding by which share of load opening takes longer for each further worker that opens
// at the same time.
const (
	tick     = 500 * time.Millisecond
	sampling = time.Second
	crowding = 0.09
)

// opening is how long workers load that open at the same time.
func (m fleet) opening(workers int) time.Duration {
	return m.load + time.Duration(crowding*float64(workers-1)*float64(m.load))
}

// result is how a simulated job went.
type result struct {
	took    time.Duration
	workers int     // at the end
	steady  float64 // rate at the end, without noise
	most    int
	changes int
	grown   time.Duration // when the last workers were added
	log     []string
}

// run simulates a job until all of its work is done.
func (m fleet) run(s *Search) result {
	random := rand.New(rand.NewPCG(m.seed, 17))
	wanted := s.wanted
	ready, r := 0, result{}
	var loads []time.Duration // when workers that load are ready
	for range wanted {
		loads = append(loads, m.first+m.opening(wanted)+m.cold)
	}
	f := Figures{GPUBusy: -1, IdleCores: -1, Cores: m.cores, Limit: m.limit, Load: m.load}
	done, ooms, before, steady := 0.0, 0, 0, time.Duration(0)
	unfinished := make([]float64, m.limit) // records of each worker's current batch
	for i := range unfinished {
		unfinished[i] = m.batch * random.Float64()
	}
	for now := time.Duration(0); now < 100*time.Hour; now += tick {
		waiting := loads[:0:0]
		for _, at := range loads {
			if at <= now {
				ready++
			} else {
				waiting = append(waiting, at)
			}
		}
		loads = waiting
		if m.memory > 0 {
			for ready > 1 && uint64(ready)*m.used > m.memory {
				ready--
				ooms++
			}
		}
		active := float64(ready)
		speed := 0.0
		if ready > 0 {
			// Loading takes cores from those that compute.
			speed = m.rate(active) * (1 - 0.2*float64(len(loads))/float64(len(loads)+ready))
			speed *= max(0.1, 1+m.noise*math.Sqrt(2/tick.Seconds())*random.NormFloat64())
		}
		step := speed * tick.Seconds()
		if done+step >= m.work {
			r.took = now + time.Duration(float64(tick)*(m.work-done)/max(step, 1e-9))
			r.workers, r.steady = wanted, m.rate(float64(wanted))
			return r
		}
		done += step
		each := 1000.0
		if m.size != nil {
			each = m.size(done)
		}
		for i := range ready {
			unfinished[i] += step / active
			batches := math.Floor(unfinished[i] / m.batch)
			unfinished[i] -= batches * m.batch
			f.Batches += int64(batches)
			f.Records += int64(batches * m.batch)
			f.Bytes += int64(batches * m.batch * each)
		}
		f.Time, f.Workers, f.Loading = now+tick, ready, len(loads)
		if f.Cold = 0; ready == 0 && len(loads) == 1 {
			f.Cold = max(0, now+tick-loads[0]+m.cold)
		}
		f.Busy += time.Duration(active * float64(tick))
		f.Remaining = -1
		if speed > 0 {
			f.Remaining = time.Duration((m.work - done) / speed * 1e9)
		}
		switch {
		case f.Cold >= sampling && m.busy != nil:
			f.GPUBusy = 0.02
		case ready != before || len(loads) > 0 && ready != 1:
			f.GPUBusy, steady = -1, now
		case now-steady >= sampling && m.busy != nil:
			f.GPUBusy = min(1, m.busy(active))
		}
		before = ready
		if m.each > 0 {
			f.IdleCores = max(0, m.cores-m.each*active)
			f.Runnable = m.each * active
		}
		if m.memory > 0 {
			f.DeviceEach, f.DeviceFree = m.used, m.memory-min(m.memory, uint64(ready)*m.used)
		}
		f.OOMs = ooms
		d := s.Step(f)
		if d.Reason != "" {
			r.log = append(r.log, fmt.Sprintf("%s %d: %s", now, d.Workers, d.Reason))
		}
		if d.Workers != wanted {
			r.changes++
			if added := d.Workers - ready - len(loads); added > 0 {
				r.grown = now + tick
				for range added {
					loads = append(loads, now+tick+m.opening(added)+m.cold)
				}
				f.Load = m.opening(added) + m.cold
			}
			ready = min(ready, d.Workers)
			loads = loads[:min(len(loads), d.Workers-ready)] // those leave first
			wanted = d.Workers
			r.most = max(r.most, wanted)
		}
	}
	return r
}

// best returns the best fixed number of workers, which open at once, and how long the job takes
// with it. Only the first one, which computes while the others load, loads for longer.
func (m fleet) best(counts ...int) (workers int, took time.Duration) {
	took = math.MaxInt64
	for _, n := range counts {
		if n > m.limit || m.memory > 0 && uint64(n)*m.used > m.memory {
			break
		}
		alone := m.opening(n) - m.load
		if m.first > 0 && n > 1 {
			alone = m.opening(n - 1)
		}
		left := max(0, m.work-alone.Seconds()*m.rate(1))
		if t := m.first + m.load + m.cold + alone + time.Duration(left/m.rate(float64(n))*1e9); t < took {
			workers, took = n, t
		}
	}
	return workers, took
}

// all returns the counts up to the limit.
func (m fleet) all() (counts []int) {
	for n := range m.limit {
		counts = append(counts, n+1)
	}
	return counts
}
