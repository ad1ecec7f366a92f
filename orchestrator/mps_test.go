package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// client is a kernel on a GPU that the multi-process service serves, whose state is in its pipe
// folder. A bad record causes a fault: then each process that is open fails with its next batch,
// and none can open before all of these have exited.
type client struct {
	plugins.Base
	folder string
	file   *os.File // locked until the process ends; its name has the faults before it
	faults int
	config struct{ Milliseconds int }
}

const (
	illegal    = "CUDA error: an illegal memory access was encountered"
	terminated = "CUDA error: the MPS client has been terminated by the server"
	notReady   = "CUDA error: MPS server is not ready to accept new MPS client requests"
)

func (c *client) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	if err := config.Decode(&c.config); err != nil {
		return err
	}
	c.folder = os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if err := c.connect(); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // loads the model
	return c.run(false)
}

// connect begins the use of the GPU.
func (c *client) connect() error {
	defer c.serialize()()
	c.faults = c.count()
	opened, _ := filepath.Glob(c.folder + "/client-*")
	for _, name := range opened {
		var faults int
		_, _ = fmt.Sscanf(filepath.Base(name), "client-%d-", &faults)
		other, err := os.Open(name)
		if err != nil {
			return err
		}
		lives := syscall.Flock(int(other.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
		other.Close()
		if lives && faults < c.faults {
			return errors.New(notReady)
		}
	}
	file, err := os.Create(fmt.Sprintf("%s/client-%d-%d", c.folder, c.faults, os.Getpid()))
	if err != nil {
		return err
	}
	c.file = file
	return syscall.Flock(int(c.file.Fd()), syscall.LOCK_EX)
}

// serialize locks the state of the service.
func (c *client) serialize() (unlock func()) {
	file, err := os.OpenFile(c.folder+"/state", os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil || syscall.Flock(int(file.Fd()), syscall.LOCK_EX) != nil {
		os.Exit(9)
	}
	return func() { file.Close() }
}

// count returns how many faults there were.
func (c *client) count() int {
	info, err := os.Stat(c.folder + "/faults")
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// run computes on the GPU.
func (c *client) run(bad bool) error {
	time.Sleep(time.Duration(c.config.Milliseconds) * time.Millisecond)
	defer c.serialize()()
	if n := c.count(); n > c.faults {
		return errors.New([]string{illegal, terminated}[os.Getpid()%2])
	}
	if bad {
		faults, err := os.OpenFile(c.folder+"/faults", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		defer faults.Close()
		_, _ = faults.WriteString("x")
		return errors.New(illegal)
	}
	return nil
}

func (c *client) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	bad := false
	for i := range batch.Len() {
		bad = bad || bytes.Contains(batch.Record(i), []byte("bad"))
		results.Unchanged(i)
	}
	return c.run(bad)
}

// clientEach is client as a concurrent kernel.
type clientEach struct{ client }

func (c *clientEach) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Name: "client", Concurrency: 8}, nil
}

func (c *clientEach) Answer(_ context.Context, record plugins.Record) plugins.Answer {
	if err := c.run(bytes.Contains(record.Bytes(), []byte("bad"))); err != nil {
		return plugins.FailedBy(err)
	}
	return plugins.Answer{Verdict: plugins.Unchanged}
}

func (c *clientEach) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, c, 8, batch, results)
}

// With MPS, a fault ends all workers of the GPU. The record that causes it fails, and no other.
func TestMPSFaultCostsOnlyItsRecord(t *testing.T) {
	for name, test := range map[string]struct {
		kernel  string
		records int
		bad     []int
	}{
		"one":                             {"test-mps", 1200, []int{700}},
		"of several workers":              {"test-mps", 1200, []int{3, 131, 900}},
		"the others are idle":             {"test-mps", 1200, []int{1199}},
		"of a concurrent kernel":          {"test-mps-each", 1200, []int{5, 700}},
		"of a concurrent kernel's chunks": {"test-mps-each", 32, []int{0, 8, 16}}, // which end with their suspects
	} {
		t.Run(name, func(t *testing.T) {
			pipes, err := os.MkdirTemp("", "mps") // short enough for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(pipes)
			daemon, err := net.Listen("unix", pipes+"/control")
			if err != nil {
				t.Fatal(err)
			}
			defer daemon.Close()
			t.Setenv("CUDA_MPS_PIPE_DIRECTORY", pipes) // kernels inherit it
			var in strings.Builder
			for i := range test.records {
				text := ""
				if slices.Contains(test.bad, i) {
					text = "bad"
				}
				fmt.Fprintf(&in, `{"id":%d,"text":%q}`+"\n", i, text)
			}
			d := newJobDir(t, in.String())
			config := onMachine(d, gputest.New(1), test.kernel)
			config = orchestrator.WithDevices(config, gpu.Options{NVML: gputest.New(1), Env: func(name string) (string, bool) {
				if name != "CUDA_MPS_PIPE_DIRECTORY" {
					return "", false
				}
				return os.LookupEnv(name)
			}})
			config.Devices.WorkersPerGPU, config.Batching.Size = 4, 16
			if test.records < 1200 {
				config.Batching.Size, config.Batching.ChunksPerGPU = 8, 1
			}
			config.Kernel.Config = []byte(`{"Milliseconds":5}`)
			report := mustRun(t, d, config)
			// Workers that try records at the same time disturb each other, and try again.
			if faults := (&client{folder: pipes}).count(); faults > 12*len(test.bad) {
				t.Errorf("%d faults", faults)
			}
			lines := strings.Split(strings.TrimSpace(d.read("out.jsonl")), "\n")
			for i, line := range lines {
				if bad := slices.Contains(test.bad, i); strings.Contains(line, `"_error"`) != bad || bad && !strings.Contains(line, illegal) {
					t.Errorf("record %d: %s", i, line)
				}
			}
			if report.Failed != int64(len(test.bad)) || len(lines) != test.records {
				t.Errorf("%+v", report)
			}
		})
	}
}
