package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/proctest"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/builtin"
)

// testKernels are kernels that misbehave, as real processes of this binary.
func testKernels() map[string]func() plugins.Kernel {
	kernels := builtin.Kernels()
	kernels["test-poison"] = func() plugins.Kernel { return &poison{} }
	kernels["test-breakable"] = func() plugins.Kernel { return &breakable{} }
	kernels["test-slow"] = func() plugins.Kernel { return &slow{} }
	kernels["test-shapes"] = func() plugins.Kernel { return shapes{} }
	kernels["test-where"] = func() plugins.Kernel { return &where{} }
	kernels["test-nursery"] = func() plugins.Kernel { return &nursery{} }
	kernels["test-stuck"] = func() plugins.Kernel { return &stuck{} }
	kernels["test-open"] = func() plugins.Kernel { return opener{} }
	kernels["test-wishes"] = func() plugins.Kernel { return wishes{} }
	kernels["test-mending"] = func() plugins.Kernel { return &mending{} }
	kernels["test-late"] = func() plugins.Kernel { return &late{} }
	kernels["test-work"] = func() plugins.Kernel { return &labour{} }
	kernels["test-vectors"] = func() plugins.Kernel { return &vectors{} }
	kernels["test-grids"] = func() plugins.Kernel { return &vectors{grids: true} }
	kernels["test-replaces"] = func() plugins.Kernel { return &replaces{} }
	kernels["test-tenants"] = func() plugins.Kernel { return &tenants{} }
	kernels["test-memory"] = func() plugins.Kernel { return &memory{} }
	kernels["test-volume"] = func() plugins.Kernel { return &volume{} }
	kernels["test-hoarder"] = func() plugins.Kernel { return &hoarder{} }
	kernels["test-every"] = func() plugins.Kernel { return every{} }
	kernels["test-gone"] = func() plugins.Kernel { return &gone{} }
	kernels["test-hangs"] = func() plugins.Kernel { return &hangs{} }
	kernels["test-crowd"] = func() plugins.Kernel { return &crowd{} }
	kernels["test-files"] = func() plugins.Kernel { return &readsFiles{} }
	kernels["test-files-each"] = func() plugins.Kernel { return &readsEach{} }
	kernels["test-reopen"] = func() plugins.Kernel { return &reopen{} }
	kernels["test-sick"] = func() plugins.Kernel { return &sick{} }
	kernels["test-sick-each"] = func() plugins.Kernel { return &sickEach{} }
	kernels["test-company"] = func() plugins.Kernel { return &company{} }
	kernels["test-mps"] = func() plugins.Kernel { return &client{} }
	kernels["test-mps-each"] = func() plugins.Kernel { return &clientEach{} }
	kernels["test-calls"] = func() plugins.Kernel { return &calls{} }
	return kernels
}

// breakable takes a while, and kills itself once a file Broken exists.
type breakable struct {
	poison
	config struct{ Broken string }
}

func (b *breakable) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	return config.Decode(&b.config)
}

func (b *breakable) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	time.Sleep(20 * time.Millisecond)
	if _, err := os.Stat(b.config.Broken); err == nil {
		os.Exit(7)
	}
	return b.poison.Process(ctx, batch, results)
}

// poison echoes, but misbehaves on batches with a record that asks for it: {"poison":
// "panic"}.
type poison struct{ plugins.Base }

func (p *poison) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		var record struct{ Poison string }
		if batch.Record(i)[0] == '{' {
			if err := batch.Decode(i, &record); err != nil {
				return err
			}
		}
		switch record.Poison {
		case "panic":
			panic("poisoned")
		case "exit":
			fmt.Fprintln(os.Stderr, "my last words")
			os.Exit(7)
		case "segv":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
			time.Sleep(time.Minute)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		case "worker":
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Hour) // other threads keep running for a moment
		case "hang":
			time.Sleep(time.Hour)
		case "error":
			return errors.New("cannot compute this batch")
		case "speaks":
			return errors.New("cannot parse: GPU has fallen off the bus")
		case "words":
			var words struct{ Word string }
			_ = batch.Decode(i, &words)
			return errors.New("cannot compute " + words.Word)
		case "oom":
			return plugins.OutOfMemory(errors.New("out of memory"))
		case "device":
			return plugins.DeviceLost(errors.New("the GPU has fallen off the bus"))
		case "fail":
			results.Fail(i, "rejected")
			continue
		case "invalid":
			results.Line(i, []byte(`{"a":`))
			continue
		case "newline":
			results.Line(i, []byte("{\"a\":\n1}"))
			continue
		case "missing":
			continue
		case "twice":
			results.Unchanged(i)
		case "huge":
			results.Line(i, []byte(`"`+strings.Repeat("x", 20<<20)+`"`))
			continue
		}
		results.Unchanged(i)
	}
	return nil
}

// hangs hangs for an hour at a record that asks for it, or when it is opened after one
// has killed it, unless a file exists that repairs it.
type hangs struct {
	plugins.Base
	config struct{ Dir string }
}

func (h *hangs) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	if err := config.Decode(&h.config); err != nil {
		return err
	}
	if _, err := os.Stat(h.config.Dir + "/died"); err == nil {
		h.hang()
	}
	return nil
}

func (h *hangs) hang() {
	if _, err := os.Stat(h.config.Dir + "/mended"); err == nil {
		return
	}
	_ = os.WriteFile(h.config.Dir+"/hangs", nil, 0o666)
	time.Sleep(time.Hour)
}

func (h *hangs) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		switch record := batch.Record(i); {
		case bytes.Contains(record, []byte("die")):
			if _, err := os.Stat(h.config.Dir + "/mended"); err != nil {
				_ = os.WriteFile(h.config.Dir+"/died", nil, 0o666)
				os.Exit(7)
			}
		case bytes.Contains(record, []byte("hang")):
			h.hang()
		}
		results.Unchanged(i)
	}
	return nil
}

// gone is a kernel whose device 0 is lost from the first record that asks for it, in
// words alone: a process that is opened on it later fails on every batch.
type gone struct {
	poison
	config struct{ Lost string }
	first  bool
	wait   int // seconds
}

func (g *gone) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	if g.first = device.Index == 0; !g.first {
		g.wait = 20 // for the first device to be lost
	}
	return config.Decode(&g.config)
}

func (g *gone) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	pass(time.Duration(g.wait)*time.Second, g.config.Lost)
	g.wait = 0
	for i := range batch.Len() {
		if g.first && bytes.Contains(batch.Record(i), []byte("lose")) {
			_ = os.WriteFile(g.config.Lost, nil, 0o666)
		}
	}
	if _, err := os.Stat(g.config.Lost); err == nil && g.first {
		return errors.New("CUDA error: uncorrectable ECC error encountered")
	}
	return g.poison.Process(ctx, batch, results)
}

// reopen dies on every batch, and can be opened three times, counted by a file that
// grows with each.
type reopen struct {
	plugins.Base
	config struct{ Opened string }
	open   bool
}

func (r *reopen) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	if err := config.Decode(&r.config); err != nil {
		return err
	}
	opened, _ := os.ReadFile(r.config.Opened)
	if err := os.WriteFile(r.config.Opened, append(opened, 'x'), 0o666); err != nil {
		return err
	}
	if r.open = len(opened) < 3; !r.open {
		return errors.New("the memory is not free yet")
	}
	return nil
}

func (r *reopen) Process(context.Context, plugins.Batch, *plugins.Results) error {
	if !r.open {
		return errors.New("it is not open")
	}
	os.Exit(7)
	return nil
}

// pass waits for a time, or less if a file exists. A test that must see a job in the middle
// of its work creates the file when it has.
func pass(d time.Duration, file string) {
	for end := time.Now().Add(d); time.Now().Before(end) && (file == "" || !exists(file)); {
		time.Sleep(min(time.Until(end), 2*time.Millisecond))
	}
}

// slow echoes after a while; batches with an odd first record take longer, so that
// chunks finish out of order.
type slow struct {
	plugins.Base
	config struct {
		Milliseconds int
		Until        string // a file: once it exists, batches take no time
	}
}

func (s *slow) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	return config.Decode(&s.config)
}

func (s *slow) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	d := time.Duration(s.config.Milliseconds) * time.Millisecond
	if batch.Record(0)[len(batch.Record(0))-2]%2 == 1 {
		d *= 3
	}
	pass(d, s.config.Until)
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}

// shapes returns every verdict in turn, by the record's "do".
type shapes struct{ plugins.Base }

func (shapes) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	n := batch.Len()
	vectors, names := make([]float32, 2*n), make([]string, n)
	for i := range n {
		vectors[2*i], vectors[2*i+1] = 0.5, float32(i)
		names[i] = "n\"" + string(rune('a'+i%26))
		record := string(batch.Record(i))
		switch {
		case strings.Contains(record, `"drop"`):
			results.Drop(i)
		case strings.Contains(record, `"two"`):
			results.Lines(i, []byte(`{"one":1}`), []byte(`{"two":2}`))
		case strings.Contains(record, `"same"`):
			results.Unchanged(i)
		}
	}
	results.Column(plugins.Float32s("vector", 2, vectors))
	results.Column(plugins.Strings("name", names))
	results.Column(plugins.Int64s("n", 0, make([]int64, n)))
	return nil
}

// where reports what it sees of its environment. It starts when the configured number
// of workers have met in the configured folder, so that each gets some records.
type where struct {
	plugins.Base
	device plugins.Device
	config struct {
		Folder  string
		Workers int
	}
}

func (w *where) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	w.device = device
	if err := config.Decode(&w.config); err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("%s/%d", w.config.Folder, os.Getpid()), nil, 0o666)
}

func (w *where) meet() {
	for range 1000 {
		if met, _ := os.ReadDir(w.config.Folder); len(met) >= w.config.Workers {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *where) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	w.meet()
	n := batch.Len()
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS"} {
		values := make([]string, n)
		for i := range values {
			values[i] = os.Getenv(name)
		}
		results.Column(plugins.Strings(name, values))
	}
	devices, dirs := make([]string, n), make([]string, n)
	dir, _ := os.Getwd()
	for i := range n {
		devices[i], dirs[i] = w.device.Name, dir
	}
	results.Column(plugins.Strings("device", devices))
	results.Column(plugins.Strings("dir", dirs))
	time.Sleep(20 * time.Millisecond) // leave some for the others
	return nil
}

// nursery starts children that outlive it if they can: one in its own group, one in its
// own session, and a daemon without its environment. The daemon is identified by the
// configured number of seconds that it sleeps.
type nursery struct{ plugins.Base }

func (n *nursery) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	commands := []*exec.Cmd{exec.Command("sleep", "1000"), exec.Command("setsid", "sleep", "1000")}
	if seconds := strings.Trim(string(config), `"{}`); seconds != "" {
		commands = append(commands, exec.Command("setsid", "sh", "-c", "env -i $(command -v sleep) "+seconds+" & exit 0"))
	}
	for _, command := range commands {
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (n *nursery) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	time.Sleep(50 * time.Millisecond)
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}

// stuck hangs in its first batch, once per job, after writing its pid to a file.
type stuck struct {
	plugins.Base
	config struct{ Pid string }
}

func (s *stuck) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	proctest.AllowHold()
	return config.Decode(&s.config)
}

func (s *stuck) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if err := os.Mkdir(s.config.Pid+".taken", 0o777); err == nil {
		if err := os.WriteFile(s.config.Pid+".new", fmt.Append(nil, os.Getpid()), 0o666); err != nil {
			return err
		}
		if err := os.Rename(s.config.Pid+".new", s.config.Pid); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	}
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}

// opener fails to open in the configured way.
type opener struct{ plugins.Base }

func (opener) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	if bytes.Contains(config, []byte("describe")) {
		return plugins.Info{}, errors.New("the model has no name")
	}
	return plugins.Info{}, nil
}

func (opener) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	switch {
	case bytes.Contains(config, []byte("error")):
		return errors.New("model.bin: no such file")
	case bytes.Contains(config, []byte("exit")):
		fmt.Fprintln(os.Stderr, "cannot open shop")
		os.Exit(3)
	case bytes.Contains(config, []byte("hang")):
		time.Sleep(time.Hour)
	case bytes.Contains(config, []byte("first-only")) && device.Index != 0:
		return plugins.DeviceLost(errors.New("device is broken"))
	}
	return nil
}

func (opener) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	return nil
}

// wishes asks for resources.
type wishes struct{ opener }

func (wishes) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	var info plugins.Info
	return info, config.Decode(&info)
}

// late finishes its batches after Process has returned, three at a time.
type late struct{ plugins.Base }

func (late) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: 3}, nil
}

func (late) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	finish := results.Defer()
	go func() {
		time.Sleep(5 * time.Millisecond)
		for i := range batch.Len() {
			results.Unchanged(i)
		}
		finish(nil)
	}()
	return nil
}

// labour does to each record what the record asks for, slowly, and can be killed at
// points. Its result for a record depends on that record alone.
type labour struct {
	plugins.Base
	config struct {
		// Milliseconds is the duration of a batch, Micros that of a record, and Slow
		// how much longer both take on device 0.
		Milliseconds, Micros, Slow int
		// Until is a file: once it exists, nothing takes time.
		Until string
		// FailOpen is a file: once it exists, no kernel opens any more.
		FailOpen string
		// Fixed: nothing fails any more. Only vectors obey it.
		Fixed bool
	}
	device plugins.Device
}

func (l *labour) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	crash.Point("kernel-start")
	l.device = device
	if err := config.Decode(&l.config); err != nil {
		return err
	}
	if _, err := os.Stat(l.config.FailOpen); err == nil {
		fmt.Fprintln(os.Stderr, "the model is gone")
		os.Exit(3)
	}
	return nil
}

// Describe: it reads a file that is fetched as "file".
func (*labour) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{ReadsFetched: true}, nil
}

func (l *labour) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	n := batch.Len()
	d := time.Duration(l.config.Milliseconds)*time.Millisecond + time.Duration(n*l.config.Micros)*time.Microsecond
	if l.config.Slow > 0 && l.device.Index == 0 {
		d *= time.Duration(l.config.Slow)
	}
	pass(d, l.config.Until)
	lengths := make([]int64, n)
	for i := range n {
		if i == n/2 {
			crash.Point("kernel-mid-batch")
		}
		record := batch.Record(i)
		lengths[i] = int64(len(record))
		if file, fetched := batch.Fetched(i, "file"); fetched {
			lengths[i] += int64(crc32.ChecksumIEEE(file))
		}
		switch {
		case bytes.Contains(record, []byte(`"fail"`)):
			results.Fail(i, "rejected")
		case bytes.Contains(record, []byte(`"drop"`)):
			results.Drop(i)
		case bytes.Contains(record, []byte(`"two"`)):
			results.Lines(i, []byte(`{"one":1}`), []byte(`{"two":2}`))
		case bytes.Contains(record, []byte(`"die"`)):
			if l.config.FailOpen != "" {
				_ = os.WriteFile(l.config.FailOpen, nil, 0o666)
			}
			os.Exit(9)
		}
	}
	results.Column(plugins.Int64s("length", 0, lengths))
	return nil
}
