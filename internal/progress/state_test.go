package progress

import (
	"math"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/kernel"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.02*math.Abs(want) {
		t.Errorf("%s = %.2f, want about %.2f", what, got, want)
	}
}

func counts(succeeded, failed int64) chunk.Counts {
	return chunk.Counts{Records: succeeded + failed, Succeeded: succeeded, Failed: failed}
}

func progressed(slot int, done, job chunk.Counts, total int64) orchestrator.Progress {
	return orchestrator.Progress{Slot: slot, Chunk: done, Records: 1000, Job: job, Total: total}
}

// The life of a job: two devices, one worker lost, a chunk given up.
func TestStateOfAStart(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 10_000, Slots: slots("GPU %d", 2)}}, orchestrator.WorkerStarted{Slot: 0}, orchestrator.WorkerStarted{Slot: 1})
	phase := func(slot int, p orchestrator.StartPhase) orchestrator.Event {
		return orchestrator.WorkerPhase{Slot: slot, Start: orchestrator.Start{Phase: p}}
	}
	s.at(1, phase(0, orchestrator.StartImporting), phase(1, orchestrator.StartImporting))
	s.line("0 of 10,000 records (0.0%), 2 workers: 2 importing")
	s.at(13, phase(0, orchestrator.StartLoading))
	s.rows(79, `
GPU 0  [                   ]                                  loading the model
GPU 1  [                   ]                                  importing
total  [                   ]     0%       0/10,000`)
	s.line("0 of 10,000 records (0.0%), 2 workers: 1 loading the model, 1 importing")
	s.at(14, phase(0, orchestrator.StartFirstBatch), orchestrator.WorkerReady{Slot: 0}, orchestrator.ChunkStarted{Slot: 0, Records: 1000})
	s.line("0 of 10,000 records (0.0%), 2 workers: 1 first batch, 1 importing")
}

func TestStateOfAJob(t *testing.T) {
	s := &script{T: t}
	s.at(0)
	s.line("")
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 10_000, Slots: slots("GPU %d", 2)}})
	s.line("0 of 10,000 records (0.0%), 2 workers: 2 waiting")
	s.at(0.1, orchestrator.WorkerStarted{Slot: 0}, orchestrator.WorkerStarted{Slot: 1})
	s.rows(79, `
GPU 0  [                      ]                                  opening kernel
GPU 1  [                      ]                                  opening kernel
total  [                      ]     0%       0/10,000`)
	s.line("0 of 10,000 records (0.0%), 2 workers: 2 opening kernel")

	// The time to load a model does not count toward the rate.
	s.at(60, orchestrator.WorkerReady{Slot: 0}, orchestrator.ChunkStarted{Slot: 0, Records: 1000})
	s.at(60.5, progressed(0, counts(50, 0), counts(50, 0), 10_000))
	s.rows(79, `
GPU 0  [>                     ]     5%       50/1,000     100/s  computing
GPU 1  [                      ]                                  opening kernel
total  [                      ]     0%      50/10,000     100/s`)
	s.at(62, progressed(0, counts(180, 20), counts(180, 20), 10_000))
	s.rows(79, `
GPU 0  [==>            ]    20%      200/1,000     100/s  computing
GPU 1  [               ]                                  opening kernel
total  [               ]     2%     200/10,000     100/s  ETA 1m38s   20 failed`)
	s.line("200 of 10,000 records (2.0%), 100/s, ETA 1m38s, 20 failed, 2 workers: 1 computing, 1 opening kernel")

	s.at(62, orchestrator.WorkerReady{Slot: 1}, orchestrator.ChunkStarted{Slot: 1, First: 1000, Records: 1000})
	s.at(64, progressed(1, counts(200, 0), counts(580, 20), 10_000), progressed(0, counts(380, 20), counts(580, 20), 10_000))
	s.line("600 of 10,000 records (6.0%), 150/s, ETA 1m3s, 20 failed, 2 workers: 2 computing")

	// GPU 1's worker is lost: its 200 records are repeated, the rate stays the same.
	s.at(65, orchestrator.WorkerLost{Slot: 1, Fault: fault.New(fault.Worker, "gone"), Job: counts(380, 20)})
	s.rows(79, `
GPU 0  [=====>         ]    40%      400/1,000    80.0/s  computing
GPU 1  [               ]                                  retrying 200 records
total  [               ]     4%     400/10,000     120/s  ETA 1m20s   20 failed`)
	s.at(66, orchestrator.WorkerStarted{Slot: 1}, orchestrator.WorkerReady{Slot: 1},
		progressed(0, counts(580, 20), counts(580, 20), 10_000))
	s.line("600 of 10,000 records (6.0%), 133/s, ETA 1m11s, 20 failed, 2 workers: 1 computing, 1 ready")

	// It is retired, and its chunk given up.
	s.at(70, orchestrator.ChunkStarted{Slot: 1, First: 1000, Records: 1000},
		orchestrator.WorkerLost{Slot: 1, Fault: fault.New(fault.Worker, "gone"), Retired: true},
		orchestrator.ChunkGivenUp{First: 1000, Records: 1000, Fault: fault.New(fault.Worker, "given up")},
		orchestrator.ChunkDone{Slot: 0, Counts: chunk.Tally{Counts: counts(980, 20)}, Job: counts(980, 1020), Total: 10_000})
	s.rows(79, `
GPU 0  [============]   100%    1,000/1,000     100/s  computing
GPU 1  [            ]                                  lost
total  [=>          ]    20%   2,000/10,000     120/s  ETA 1m7s    1,020 failed`)
	s.at(71)
	s.rows(79, `
GPU 0  [============]   100%    1,000/1,000    90.9/s  ready
GPU 1  [            ]                                  lost
total  [=>          ]    20%   2,000/10,000     109/s  ETA 1m13s   1,020 failed`)
	s.line("2,000 of 10,000 records (20.0%), 109/s, ETA 1m13s, 1,020 failed, 2 workers: 1 ready, 1 lost")

	s.at(72, orchestrator.Stopping{})
	s.rows(79, `
GPU 0  [============]   100%    1,000/1,000    83.3/s  ready
GPU 1  [            ]                                  lost
total  [=>          ]    20%   2,000/10,000     100/s  stopping    1,020 failed`)
	stop := fault.New(fault.Canceled, "stopped on request")
	s.at(73, orchestrator.Finished{Report: orchestrator.Report{
		In: 10_000, Succeeded: 980, Failed: 1020, Pending: 8000, Computed: 2000, Rate: 27.4, Elapsed: 73 * time.Second, Stop: stop,
	}})
	s.rows(79, `
GPU 0  [            ]                                  ended
GPU 1  [            ]                                  ended
total  [=>          ]    20%   2,000/10,000    27.4/s  stopped     1,020 failed`)
}

// A bar that jumps back says why, until the worker has been computing again for a while. A
// chunk that was given up, and one that had not come far, is not retried.
func TestStateRetrying(t *testing.T) {
	s := &script{T: t}
	gone := fault.New(fault.Worker, "gone")
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 10_000, Slots: slots("GPU %d", 1)}},
		orchestrator.ChunkStarted{Slot: 0, Records: 1000}, orchestrator.WorkerLost{Slot: 0, Fault: gone})
	s.status(0, "restarting")
	s.at(1, orchestrator.ChunkStarted{Slot: 0, Records: 1000}, progressed(0, counts(1, 0), counts(1, 0), 10_000),
		orchestrator.WorkerLost{Slot: 0, Fault: gone}, orchestrator.WorkerStarted{Slot: 0})
	s.status(0, "retrying 1 record")
	s.at(60) // loading a model takes long
	s.status(0, "retrying 1 record")
	s.at(61, orchestrator.WorkerReady{Slot: 0}, orchestrator.ChunkStarted{Slot: 0, Records: 1000})
	s.status(0, "retrying 1 record")
	s.at(70, progressed(0, counts(500, 0), counts(500, 0), 10_000))
	s.status(0, "computing")
	s.at(71, orchestrator.WorkerLost{Slot: 0, Fault: gone}, orchestrator.ChunkGivenUp{First: 0, Records: 1000, Fault: gone})
	s.status(0, "restarting")
	s.at(72, orchestrator.ChunkStarted{Slot: 0, First: 1000, Records: 1000}, progressed(0, counts(500, 0), counts(1500, 0), 10_000),
		orchestrator.WorkerLost{Slot: 0, Fault: gone, Retired: true})
	s.status(0, "lost")
}

// A worker whose kernel waits for files does not compute, and the next chunk changes nothing.
func TestStateFetching(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 10_000, Slots: slots("GPU %d", 2)}},
		orchestrator.ChunkStarted{Slot: 0, Records: 1000}, orchestrator.ChunkStarted{Slot: 1, Records: 1000},
		orchestrator.Progress{Slot: 1, Records: 1000, Total: 10_000, Awaits: orchestrator.AwaitsFiles}, orchestrator.ChunkStarted{Slot: 1, Records: 1000})
	s.line("0 of 10,000 records (0.0%), 2 workers: 1 computing, 1 fetching files")
	s.status(1, "fetching files")
	s.at(1, progressed(1, counts(0, 0), counts(0, 0), 10_000))
	s.line("0 of 10,000 records (0.0%), 2 workers: 2 computing")
}

// A job whose workers all wait for a server has no ETA: its rate says nothing about the rest.
func TestStateHeld(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 10_000, Slots: slots("CPU %d", 1)}},
		orchestrator.ChunkStarted{Slot: 0, Records: 10_000})
	for second := 1; second <= 60; second++ {
		s.at(float64(second), progressed(0, counts(int64(100*second), 0), counts(int64(100*second), 0), 10_000))
	}
	s.line("6,000 of 10,000 records (60.0%), 100/s, ETA 40s, 1 worker: 1 computing")
	held := progressed(0, counts(6000, 0), counts(6000, 0), 10_000)
	held.Awaits = orchestrator.AwaitsServer
	s.at(60, held)
	s.line("6,000 of 10,000 records (60.0%), 100/s, 1 worker: 1 waiting for the server")
	if status := totalRow(s.job.View()).status; status != "waiting for the server" {
		t.Errorf("status %q", status)
	}
}

// A finished job is shown with full bars and the figures of the report.
func TestStateAtTheEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		in   int64
		want string
	}{
		{"records", 2000, "total  [=======================================]   100%  2,000/2,000     290/s  in 6.9s"},
		{"no records", 0, "total  [===============================================]   100%  0/0     290/s  in 6.9s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &script{T: t}
			s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: test.in}},
				orchestrator.Finished{Report: orchestrator.Report{In: test.in, Succeeded: test.in, Computed: test.in, Rate: 290, Elapsed: 6900 * time.Millisecond}})
			s.rows(94, test.want)
		})
	}
}

// The work of an earlier run is shown from the start: a model may take minutes to load.
func TestStateOfAJobGoneOnWith(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 400, Slots: slots("CPU %d", 1)}},
		orchestrator.Resuming{Done: 100, Job: chunk.Tally{Counts: counts(95, 5)}, Total: 400})
	s.at(5)
	s.line("100 of 400 records (25.0%), 5 failed, 1 worker: 1 waiting")
}

// Answers of an earlier run, which a worker imports, are progress but no work. After the loss
// of a worker, answers are not computed again. A worker's row shows all of its chunks.
func TestStateOfLoggedAnswers(t *testing.T) {
	s := &script{T: t}
	told := func(job, answers, ahead, computed int64) orchestrator.Progress {
		return orchestrator.Progress{
			Slot: 0, Job: counts(job, 0), Answers: answers, Ahead: ahead, Held: 400, Computed: computed, Records: 100, Total: 400,
		}
	}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 400, Slots: slots("CPU %d", 1), Info: kernel.Info{Concurrency: 8}}},
		orchestrator.Resuming{Answers: 200, Total: 400}, orchestrator.ChunkStarted{Slot: 0, Records: 100})
	s.line("200 of 400 records (50.0%), 1 worker: 1 computing")
	s.at(0.1, told(0, 200, 150, 0))
	s.at(2, told(0, 220, 220, 20))
	s.rows(90, `
CPU 0  [====================>                  ]    55%  220/400    10.0/s  computing
total  [====================>                  ]    55%  220/400    10.0/s  ETA 18s`)
	s.at(3, orchestrator.WorkerLost{Slot: 0, Fault: fault.New(fault.Worker, "gone"), Answers: 220})
	s.status(0, "restarting")
	s.at(4, orchestrator.ChunkStarted{Slot: 0, Records: 100}, told(0, 240, 240, 40))
	near(t, "rate", s.job.View().Rate, 10)
	s.at(5, orchestrator.ChunkDone{Slot: 0, Counts: chunk.Tally{Counts: counts(90, 0)}, Job: counts(90, 0), Answers: 160, Ahead: 160, Held: 310, Computed: 50, Total: 400})
	s.rows(90, `
CPU 0  [===================>                   ]    51%  160/310    10.0/s  computing
total  [=======================>               ]    62%  250/400    10.0/s  ETA 15s`)
}

// Events of several slots overtake each other: the job's counts jump back and forth by a
// batch, but the rate must not.
func TestStateOvertakenEvents(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 1_000_000, Slots: slots("GPU %d", 2)}},
		orchestrator.ChunkStarted{Slot: 0, Records: 500_000}, orchestrator.ChunkStarted{Slot: 1, Records: 500_000})
	for i := range int64(1000) {
		s.at(float64(i)/100,
			progressed(0, counts(i*10, 0), counts(i*20, 0), 1_000_000),
			progressed(1, counts(i*10, 0), counts(max(0, i*20-10), 0), 1_000_000))
	}
	near(t, "rate", s.job.View().Rate, 2000)
}

// A worker that has exited is not shown as ready when its results are booked afterwards.
func TestStateOfExitedWorkers(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 1000, Slots: named("GPU 0 #1", "GPU 0 #2")}})
	for i := range 2 {
		s.at(0, orchestrator.WorkerStarted{Slot: i}, orchestrator.WorkerReady{Slot: i}, orchestrator.ChunkStarted{Slot: i, First: int64(500 * i), Records: 500})
	}
	s.at(1, orchestrator.WorkerLeft{Slot: 0}, orchestrator.ChunkDone{Slot: 0, Counts: chunk.Tally{Counts: counts(100, 0)}, Job: counts(100, 0), Total: 1000})
	s.at(2, orchestrator.WorkerLost{Slot: 1, Retired: true, Fault: fault.New(fault.Device, "gone"), Job: counts(100, 0)},
		orchestrator.ChunkDone{Slot: 1, First: 500, Counts: chunk.Tally{Counts: counts(200, 0)}, Job: counts(300, 0), Total: 1000})
	s.at(3)
	if phases := phases(s.job.View().Workers); phases["yielded"] != 1 || phases["lost"] != 1 {
		t.Errorf("%v, want one that has yielded and one that is lost", phases)
	}
}

// Several workers share a device's row.
func TestStateOfSharedDevices(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: -1, Slots: named("GPU 0 #1", "GPU 1 #1", "GPU 0 #2", "GPU 1 #2")}})
	for i := range 4 {
		s.at(0, orchestrator.WorkerStarted{Slot: i})
	}
	s.at(1, orchestrator.ChunkStarted{Slot: 0, Records: 1000}, orchestrator.ChunkStarted{Slot: 2, Records: 1000},
		orchestrator.ChunkStarted{Slot: 1, Records: 1000})
	s.at(2, progressed(0, counts(500, 0), counts(500, 0), -1), progressed(2, counts(700, 0), counts(1200, 0), -1),
		orchestrator.WorkerLost{Slot: 3, Fault: fault.New(fault.Device, "gone"), Retired: true, Job: counts(1200, 0)})
	s.rows(79, `
GPU 0  [=============>          ]    60%  1,200/2,000   1,200/s  computing
GPU 1  [                        ]     0%      0/1,000            computing 1/2
total  [........................]               1,200   1,200/s`)
	s.at(3, orchestrator.WorkerLost{Slot: 1, Fault: fault.New(fault.Device, "gone"), Retired: true, Job: counts(1200, 0)})
	s.rows(79, `
GPU 0  [=============>          ]    60%  1,200/2,000     600/s  computing
GPU 1  [                        ]                                lost
total  [........................]               1,200     600/s`)
	s.line("1,200 records, 600/s, 4 workers: 2 computing, 2 lost")
}
