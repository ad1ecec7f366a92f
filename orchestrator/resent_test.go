package orchestrator_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// resent checks that no record is sent again that has an answer, logged or committed, when a
// process is killed.
type resent struct {
	t      *testing.T
	folder string             // of the job
	n      int                // records
	sent   func() map[int]int // how often each record was sent, so far
	mark   string             // of the job's processes
	begin  func() *driver     // starts the job again
	kills  []killed
}

// killed is what was known when a process had just been killed.
type killed struct {
	victim string
	sent   map[int]int // of the records that have an answer
}

// kill kills the program that the kernel runs, the kernel, the worker, the orchestrator, or all
// of them. A worker and an orchestrator that survive stand still until the answers are noted.
// It returns the job as it continues.
func (r *resent) kill(victim string, job *driver, worker int) *driver {
	r.t.Helper()
	orchestrator := job.cmd.Process.Pid
	switch victim {
	case "program":
		r.killAmong(victim, programOf(worker), orchestrator, worker)
		return job
	case "kernel":
		r.killAmong(victim, kernelOf(worker), orchestrator, worker)
		return job
	case "worker":
		r.killAmong(victim, worker, orchestrator)
		return job
	case "orchestrator":
		killAll([]int{orchestrator})
	case "all":
		killAll(append([]int{orchestrator, worker}, childrenOf(worker)...))
	}
	job.wait(r.t)
	awaitGone(r.t, r.mark)
	r.note(victim)
	return r.begin()
}

func (r *resent) killAmong(victim string, pid int, others ...int) {
	r.t.Helper()
	if pid == 0 {
		r.t.Fatalf("there is no %s to kill", victim)
	}
	for _, other := range others {
		_ = syscall.Kill(other, syscall.SIGSTOP)
		defer func() { _ = syscall.Kill(other, syscall.SIGCONT) }()
		r.await(func() bool { state, _ := processStat(other); return state == 'T' })
	}
	killAll([]int{pid})
	r.await(func() bool { return !alive(pid) })
	r.note(victim)
}

func (r *resent) await(reached func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("a process did not stop")
		}
	}
}

// note takes down which records have an answer.
func (r *resent) note(victim string) {
	r.t.Helper()
	kept, err := orchestrator.Kept(r.folder)
	if err != nil {
		r.t.Fatal(err)
	}
	sent := r.sent()
	for number := range r.n {
		if !kept(int64(number)) {
			delete(sent, number)
		}
	}
	if len(sent) == 0 {
		r.t.Fatalf("kill of the %s: no record has an answer: this test shows nothing", victim)
	}
	r.kills = append(r.kills, killed{victim, sent})
}

// check checks the job when it has ended. Each kill may cost the answers of the records that
// were in flight.
func (r *resent) check(concurrency int) {
	r.t.Helper()
	total, sent := 0, r.sent()
	for number := range r.n {
		total += sent[number]
		if sent[number] < 1 || sent[number] > 1+len(r.kills) {
			r.t.Errorf("record %d was sent %d times", number, sent[number])
		}
	}
	if most := r.n + len(r.kills)*concurrency; len(sent) != r.n || total > most {
		r.t.Errorf("%d records were sent %d times; with %d in flight and %d kills, at most %d are right", len(sent), total, concurrency, len(r.kills), most)
	}
	for i, kill := range r.kills {
		for number, before := range kill.sent {
			if sent[number] != before {
				r.t.Errorf("kill %d, of the %s: record %d had an answer and was sent again", i+1, kill.victim, number)
			}
		}
		r.t.Logf("kill of the %s: %d records had an answer", kill.victim, len(kill.sent))
	}
	r.t.Logf("%d records were sent %d times", r.n, total)
}
