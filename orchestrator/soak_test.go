package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/orchestrator"
)

// The soak's length and its random seed:
//
//	GPURUN_SOAK_KILLS=1000 GPURUN_SOAK_SEED=42 go test -run TestSoak ./orchestrator
const (
	soakKillsVariable = "GPURUN_SOAK_KILLS"
	soakSeedVariable  = "GPURUN_SOAK_SEED"
	// soakOnlyVariable is a part of the names of the jobs to run, as in variants_test.go.
	soakOnlyVariable = "GPURUN_SOAK_ONLY"

	soakKills = 30               // without the variable,
	soakTime  = 10 * time.Second // and no longer than this
)

// TestSoak kills processes of jobs at random, as often as asked. Jobs are resumed until
// they are done; then each must have produced what an undisturbed run produces, and
// have left nothing behind.
//
// A kill comes after a random number of the job's events, or at a random passing of a
// random point. Two rules separate the effects of kills from those of bad records,
// which the product treats alike on purpose. A kernel is killed only if its worker has
// finished a batch since the last kill: a batch that keeps killing its kernel is
// bisected, and finally its record is marked. At most three workers are killed in one
// life of an orchestrator: the fourth loss of one chunk would mark it, and the fifth
// loss of a slot would retire its device.
//
// A mass kill ends orchestrator, workers and kernels at once. Between two lives, bytes
// of the unfinished output may be flipped.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	seed, err := strconv.ParseUint(os.Getenv(soakSeedVariable), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	kills, until := soakKills, time.Now().Add(soakTime)
	if n, err := strconv.Atoi(os.Getenv(soakKillsVariable)); err == nil {
		kills, until = n, time.Now().Add(24*time.Hour)
	}
	t.Logf("%s=%d", soakSeedVariable, seed)
	s := &soak{random: rand.New(rand.NewPCG(seed, 0)), killed: make(map[string]int)}
	started := time.Now()
	only := func(v *variant) bool { return strings.Contains(v.name, os.Getenv(soakOnlyVariable)) }
	for s.kills < kills && time.Now().Before(until) && !t.Failed() {
		s.job(t, randomVariant(s.random, only))
	}
	t.Logf("%d kills %v and %d flipped bits in %d jobs and %d lives, %d resumed, %d refused for an edited module, in %s; every output as undisturbed",
		s.kills, s.killed, s.rotted, s.jobs, s.lives, s.resumed, s.refused, time.Since(started).Round(time.Second))
}

// soak counts what the soak has done.
type soak struct {
	random                      *rand.Rand
	kills, jobs, lives, resumed int
	refused                     int            // resumes with an edited module
	rotted                      int            // bits flipped
	killed                      map[string]int // by victim
}

const soakHelper = `
def compute(record):
    do = record.get("do")
    if do == "fail": return ValueError("rejected")
    if do == "drop": return None
    if do == "two": return [{"one": record["id"]}, {"two": record["id"]}]
    record["version"] = 1
    return record
`

// edit runs a killed job with a module that differs from the one it started with. It
// must be refused with the module's name, and nothing of it must change.
func (s *soak) edit(t *testing.T, d jobDir, c orchestrator.Config, mark, temp string) {
	t.Helper()
	journal, _ := os.ReadFile(filepath.Join(jobFolder(c), "journal"))
	// A job that has computed nothing starts over; the last line may be torn.
	if bytes.Count(journal, []byte(`{"segment"`))-bytes.Count(journal, []byte(`{"drop"`)) < 2 {
		return
	}
	d.write("helper.py", strings.ReplaceAll(soakHelper, `["version"] = 1`, `["version"] = 2`))
	end := startDriver(t, driverOf(t, c), mark, "TMPDIR="+temp).wait(t)
	awaitGone(t, mark)
	if end.err == nil || end.err.Kind != "conflict" || !strings.Contains(end.err.Message, d.join("helper.py")) {
		t.Fatalf("with an edited module: %s\n%s", end, d.logs())
	}
	d.write("helper.py", soakHelper)
	s.refused++
}

// job runs one job to its end, through as many deaths as it takes.
func (s *soak) job(t *testing.T, v *variant) {
	t.Helper()
	s.jobs++
	mark := fmt.Sprintf("soak-%d-%d", os.Getpid(), s.jobs)
	want := v.undisturbed(t)
	d, c := v.start(t)
	if v.way.name != adaptiveGPU {
		c.Devices.GPUs = "cpu:2"
	}
	temp := shortTemp(t)
	for life := 0; ; life++ {
		if life == 200 {
			t.Fatalf("the job does not come to its end\n%s", d.logs())
		}
		end := s.live(t, c, mark, temp, life)
		awaitGone(t, mark)
		if end.resuming > 0 || end.report.Resumed > 0 {
			s.resumed++
		}
		if end.done() {
			break
		}
		if !end.killed && end.err.Kind != "canceled" {
			t.Fatalf("life %d of job %d ended: %s\n%s", life, s.jobs, end, d.logs())
		}
		if v.way == withModule && s.random.IntN(3) > 0 {
			s.edit(t, d, c, mark, temp)
		}
		if s.random.IntN(2) == 0 {
			s.rot(t, c)
		}
	}
	checkFinished(t, d, c, want, temp)
	if t.Failed() {
		t.Logf("job %d, %s\n%s", s.jobs, v.name, d.logs())
	}
	_ = os.RemoveAll(d.path)
}

// rot flips a bit of the job's unfinished output. A job that has started to rename its
// files is left alone: they are no longer all its own.
func (s *soak) rot(t *testing.T, c orchestrator.Config) {
	t.Helper()
	folder := jobFolder(c)
	if !exists(folder+"/failures.partial") || !exists(folder+"/output.partial") {
		return
	}
	files := []string{folder + "/failures.partial"}
	for _, pattern := range []string{"/errors.partial", "/output.partial", "/output.partial/part-*", "/array-*.partial"} {
		found, _ := filepath.Glob(folder + pattern)
		files = append(files, found...)
	}
	path := files[s.random.IntN(len(files))]
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return
	}
	edit(t, path, func(data []byte) []byte {
		data[s.random.IntN(len(data))] ^= 1 << s.random.IntN(8)
		return data
	})
	s.rotted++
}

// soakPoints are the points at which a process kills itself. Only one process passes
// those of workers and kernels.
var soakPoints = []string{
	"journal-made", "part-written", "journalled", "part-begun", "appended", "unit-appended", "tail-appended", "encoded", "array-renamed", "synced", "exchanged", "durable", "complete", "renamed", "clearing", "stopping",
	"worker-start", "worker-mid-batch", "worker-handed-back", "worker-part-closed", "worker-stopping", "kernel-start", "kernel-mid-batch",
}

// live is one life of an orchestrator.
func (s *soak) live(t *testing.T, c orchestrator.Config, mark, temp string, life int) outcome {
	t.Helper()
	s.lives++
	env := []string{"TMPDIR=" + temp}
	fuse := temp + "-fuse"
	var point string
	if s.random.IntN(3) == 0 {
		point = soakPoints[s.random.IntN(len(soakPoints))]
		touch(fuse)
		defer os.Remove(fuse)
		env = append(env, fmt.Sprintf("%s=%s:%d", crash.Variable, point, 1+s.random.IntN(8)), crash.OnceVariable+"="+fuse)
	}
	job := driverOf(t, c)
	job.DurableEvery = time.Duration(20+s.random.IntN(300)) * time.Millisecond
	driver := startDriver(t, job, mark, env...)
	hunt := &soakHunt{soak: s, driver: driver, mark: mark, workers: make(map[int]int), fresh: make(map[int]bool)}
	if point == "" {
		hunt.plan()
	}
	for {
		name, value, ok := driver.next(t)
		if !ok {
			break
		}
		hunt.note(name, value)
	}
	end := driver.wait(t)
	if point != "" && os.Remove(fuse) != nil {
		s.count(victimOf(point))
	}
	return end
}

func victimOf(point string) string {
	for _, victim := range []string{"worker", "kernel"} {
		if len(point) > len(victim) && point[:len(victim)] == victim {
			return victim
		}
	}
	return "orchestrator"
}

func (s *soak) count(victim string) {
	s.kills++
	s.killed[victim]++
}

// soakHunt is the kills of one life.
type soakHunt struct {
	soak    *soak
	driver  *driver
	mark    string
	workers map[int]int  // the process of each slot
	fresh   map[int]bool // slots that have finished a batch since their last kill
	left    int          // events until the next kill
	victim  string
	lost    int // workers killed
	over    bool
}

func (h *soakHunt) plan() {
	h.left = 1 + h.soak.random.IntN(40)
	h.victim = []string{"orchestrator", "orchestrator and workers", "all", "worker", "kernel", "kernel", "stop"}[h.soak.random.IntN(7)]
}

// note takes an event, and kills if it is time.
func (h *soakHunt) note(name, value string) {
	var event struct{ Slot, PID int }
	_ = json.Unmarshal([]byte(value), &event)
	switch name {
	case "worker_started":
		h.workers[event.Slot], h.fresh[event.Slot] = event.PID, false
	case "progress", "chunk_done":
		h.fresh[event.Slot] = true
	}
	if h.victim == "" || h.over {
		return
	}
	if h.left--; h.left > 0 {
		return
	}
	h.kill()
}

func (h *soakHunt) kill() {
	switch h.victim {
	case "orchestrator":
		h.over = true
		if h.driver.cmd.Process.Kill() == nil {
			h.soak.count("orchestrator")
		}
		return
	case "orchestrator and workers": // their guards stay
		h.over = true
		_ = h.driver.cmd.Process.Kill()
		for _, pid := range h.workers {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		h.soak.count(h.victim)
		return
	case "all":
		h.over = true
		for _, pid := range markedProcesses(h.mark) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		h.soak.count("all")
		return
	case "stop": // and something while it stops, or nothing
		_ = h.driver.cmd.Process.Signal(syscall.SIGTERM)
		h.left, h.victim = 1+h.soak.random.IntN(3), "orchestrator"
		return
	}
	first := h.soak.random.IntN(2)
	for i := range 2 {
		slot := (first + i) % 2
		pid := h.workers[slot]
		if !h.fresh[slot] || h.victim == "worker" && h.lost == 3 {
			continue
		}
		if h.victim == "kernel" {
			pid = kernelOf(pid)
			// Or a process of a Python kernel: the interpreter, or one that runs prepare.
			if below := childrenOf(pid); len(below) > 0 && h.soak.random.IntN(2) == 0 {
				pid = below[h.soak.random.IntN(len(below))]
			}
		}
		if !alive(pid) || syscall.Kill(pid, syscall.SIGKILL) != nil {
			continue
		}
		h.fresh[slot] = false
		h.soak.count(h.victim)
		if h.victim == "worker" {
			h.lost++
		}
		h.plan()
		return
	}
	h.left = 1 // at the next event, then
}
