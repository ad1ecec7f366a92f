package scaling

import (
	"math"
	"math/rand/v2"
	"time"
)

// fleet simulates the workers of one device: how fast they are together, how long they
// load, what memory they take, and noise.
type fleet struct {
	rate  func(workers float64) float64 // records per second of that many workers
	busy  func(workers float64) float64 // of the GPU; nil: unknown
	cores float64
	each  float64 // cores that a worker uses; 0: none
	limit int
	load  time.Duration
	noise float64                    // of the rate of each interval, a share
	batch float64                    // records per batch
	size  func(done float64) float64 // bytes of a record; nil: 1000

	memory, used uint64 // device memory: total, and of each worker

	work float64 // records of the job
	seed uint64
}

const tick = 2 * time.Second

// result is how a simulated job went.
type result struct {
	took    time.Duration
	workers int     // at the end
	steady  float64 // rate at the end, without noise
	most    int
	changes int
	log     []string
}

// run simulates a job until all of its work is done.
func (m fleet) run(s *Search) result {
	random := rand.New(rand.NewPCG(m.seed, 17))
	wanted := s.wanted
	ready, r := 0, result{}
	var loads []time.Duration // when workers that load are ready
	for range wanted {
		loads = append(loads, m.load)
	}
	f := Figures{GPUBusy: -1, IdleCores: -1, Cores: m.cores, Limit: m.limit, Load: m.load}
	done, bytes, ooms := 0.0, 0.0, 0
	for now := time.Duration(0); ; now += tick {
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
			speed *= max(0.1, 1+m.noise*random.NormFloat64())
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
		bytes += step * each
		f.Time, f.Workers, f.Loading = now+tick, ready, len(loads)
		f.Busy = time.Duration(active * float64(f.Time))
		f.Records, f.Bytes, f.Batches = int64(done), int64(bytes), int64(done/m.batch)
		f.Remaining = -1
		if speed > 0 {
			f.Remaining = time.Duration((m.work - done) / speed * 1e9)
		}
		if m.busy != nil {
			f.GPUBusy = min(1, m.busy(active))
		}
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
			r.log = append(r.log, now.String()+" "+d.Reason)
		}
		if d.Workers != wanted {
			r.changes++
			for range d.Workers - ready - len(loads) {
				loads = append(loads, now+tick+m.load)
			}
			ready = min(ready, d.Workers)
			wanted = d.Workers
			r.most = max(r.most, wanted)
		}
		if now > 100*time.Hour {
			return r
		}
	}
}

// best returns the best fixed number of workers and how long the job takes with it.
func (m fleet) best() (workers int, took time.Duration) {
	took = math.MaxInt64
	for n := 1; n <= m.limit; n++ {
		if m.memory > 0 && uint64(n)*m.used > m.memory {
			break
		}
		if t := m.load + time.Duration(m.work/m.rate(float64(n))*1e9); t < took {
			workers, took = n, t
		}
	}
	return workers, took
}
