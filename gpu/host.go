package gpu

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Host is the condition of the machine around the GPUs. A kernel that waits for its
// CPUs, or whose machine swaps, is slow however cool its GPU is.
type Host struct {
	// CPU is the utilization of all cores since the previous sample.
	CPU             Optional[float64] `json:"cpu_percent,omitzero"`
	MemoryTotal     Optional[uint64]  `json:"memory_total,omitzero"`
	MemoryAvailable Optional[uint64]  `json:"memory_available,omitzero"`
	// The pressures are the share of the last ten seconds in which some task waited
	// for that resource; Linux before 4.20 does not report them.
	PressureCPU    Optional[float64] `json:"pressure_cpu_percent,omitzero"`
	PressureMemory Optional[float64] `json:"pressure_memory_percent,omitzero"`
	PressureIO     Optional[float64] `json:"pressure_io_percent,omitzero"`
}

// HostReader reads the condition of the machine. It is not safe for concurrent use.
type HostReader struct{ reader hostReader }

// NewHostReader returns a reader of this machine.
func NewHostReader() *HostReader { return &HostReader{hostReader{proc: "/proc"}} }

// Read returns the current condition; CPU is that since the previous call.
func (r *HostReader) Read() Host { return r.reader.read() }

// hostReader reads /proc. It keeps the previous CPU times.
type hostReader struct {
	proc        string // "/proc"
	busy, total uint64
}

func (r *hostReader) read() Host {
	h := Host{
		CPU:            r.cpu(),
		PressureCPU:    r.pressure("cpu"),
		PressureMemory: r.pressure("memory"),
		PressureIO:     r.pressure("io"),
	}
	r.lines("meminfo", func(fields []string) bool {
		if len(fields) < 2 {
			return true
		}
		kib, err := strconv.ParseUint(fields[1], 10, 64)
		switch {
		case err != nil:
		case fields[0] == "MemTotal:":
			h.MemoryTotal = Some(kib << 10)
		case fields[0] == "MemAvailable:":
			h.MemoryAvailable = Some(kib << 10)
		}
		return h.MemoryTotal.IsZero() || h.MemoryAvailable.IsZero()
	})
	return h
}

// cpu reads the first line of /proc/stat: user, nice, system, idle, iowait, …
func (r *hostReader) cpu() Optional[float64] {
	var busy, total uint64
	r.lines("stat", func(fields []string) bool {
		if len(fields) < 6 || fields[0] != "cpu" {
			return false
		}
		for i, field := range fields[1:min(9, len(fields))] { // guest time is in user time
			ticks, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return false
			}
			total += ticks
			if i != 3 && i != 4 {
				busy += ticks
			}
		}
		return false
	})
	before, beforeTotal := r.busy, r.total
	r.busy, r.total = busy, total
	if beforeTotal == 0 || total <= beforeTotal || busy < before {
		return Optional[float64]{}
	}
	return Some(100 * float64(busy-before) / float64(total-beforeTotal))
}

// pressure reads "some avg10=0.12 avg60=…" from /proc/pressure.
func (r *hostReader) pressure(resource string) (share Optional[float64]) {
	r.lines(filepath.Join("pressure", resource), func(fields []string) bool {
		if len(fields) > 1 && fields[0] == "some" {
			if value, ok := strings.CutPrefix(fields[1], "avg10="); ok {
				if percent, err := strconv.ParseFloat(value, 64); err == nil {
					share = Some(percent)
				}
			}
		}
		return share.IsZero()
	})
	return share
}

// lines calls take with each line's fields until it returns false. A missing file has
// no lines: this is not Linux, or an old version.
func (r *hostReader) lines(name string, take func(fields []string) bool) {
	file, err := os.Open(filepath.Join(r.proc, name))
	if err != nil {
		return
	}
	defer file.Close()
	for in := bufio.NewScanner(file); in.Scan(); {
		if !take(strings.Fields(in.Text())) {
			return
		}
	}
}
