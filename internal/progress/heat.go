package progress

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// heat is how hot a GPU is, and what is done about it.
type heat struct {
	name    string
	celsius int
	known   bool
	unseen  bool    // it is not known how hot it is, where it should be
	pace    float64 // the share of the time in which it may compute
}

// warm books a sample.
func (s *state) warm(e orchestrator.DeviceSample) {
	for _, d := range s.devices {
		for i := range d.heat {
			if h := &d.heat[i]; h.name == e.Device {
				h.celsius, h.known = e.Temperature.Get()
				h.pace, h.unseen = e.Pace, e.Problem != ""
			}
		}
	}
}

// hottest is the one of a device's GPUs that has most to tell: the slowest, among
// those the hottest.
func (d *deviceState) hottest() heat {
	worst := heat{pace: 1}
	for _, h := range d.heat {
		if h.pace < worst.pace || h.pace == worst.pace && !worst.unseen && (h.unseen || h.known && (!worst.known || h.celsius > worst.celsius)) {
			worst = h
		}
	}
	return worst
}

// degrees is the temperature for a person, "" if it is not known.
func (h heat) degrees() string {
	switch {
	case h.unseen:
		return notMonitored
	case !h.known:
		return ""
	}
	return fmt.Sprintf("%d°C", h.celsius)
}

// notMonitored stands for the temperature of a GPU that should tell it and does not.
const notMonitored = "not monitored"

// over puts the heat into what a worker is at: "computing, 71°C", "slowed, 84°C",
// "paused, not monitored".
func (h heat) over(status string) string {
	at, _, _ := strings.Cut(status, " ")
	switch {
	case h.pace == 0 && (at == "" || at == string(computing) || at == string(ready) || at == string(waiting)):
		status = "paused" // whatever it would be at
	case h.pace < 1 && at == string(computing):
		status = "slowed" + strings.TrimPrefix(status, string(computing))
	}
	if text := h.degrees(); text != "" {
		return status + ", " + text
	}
	return status
}

// heatText is what a line tells of the heat: who is slowed or not monitored, else how
// hot the hottest is; "" if nobody tells.
func (s *state) heatText() string {
	var slowed []string
	var top heat
	for _, d := range s.devices {
		h := d.hottest()
		if h.known && !h.unseen && (!top.known || h.celsius > top.celsius) {
			top = h
		}
		switch {
		case h.pace == 0:
			slowed = append(slowed, strings.TrimSpace(h.name+" "+h.over("")))
		case h.pace < 1 && h.unseen:
			slowed = append(slowed, h.name+" slowed, "+h.degrees())
		case h.pace < 1:
			slowed = append(slowed, strings.Join(strings.Fields(h.name+" "+h.degrees()+" slowed"), " "))
		case h.unseen:
			slowed = append(slowed, h.name+" "+h.degrees())
		}
	}
	switch {
	case len(slowed) > 0:
		return strings.Join(slowed, ", ")
	case top.known:
		return "up to " + top.degrees()
	}
	return ""
}

// heatNotice is the line that a change of a device's state is worth, "" if none.
func heatNotice(e orchestrator.DeviceEvent) string {
	degrees := ""
	if celsius, known := e.Temperature.Get(); known {
		degrees = fmt.Sprintf(" at %d°C", celsius)
	}
	switch e.Kind {
	case gpu.Throttle:
		if e.Pace > 0 {
			return fmt.Sprintf("%s is slowed to %.0f %%%s%s", e.Device, 100*e.Pace, degrees, memoryText(e))
		}
	case gpu.BecameCritical:
		if e.Pace == 0 {
			return fmt.Sprintf("%s pauses%s", e.Device, degrees)
		}
	case gpu.Overheat:
		return fmt.Sprintf("%s is too hot%s: it gives its work back", e.Device, degrees)
	case gpu.Unseen:
		return fmt.Sprintf("%s is not monitored: %s%s", e.Device, plain(e.Problem), staysText(e.Pace))
	case gpu.MemoryErrors:
		return memoryErrors(e)
	case gpu.Seen:
		return fmt.Sprintf("%s is monitored again%s", e.Device, degrees)
	case gpu.Resume:
		if e.Problem == "" {
			return fmt.Sprintf("%s goes on%s", e.Device, degrees)
		}
	case gpu.StateChange:
		if e.Problem != "" && e.From == gpu.Critical && e.Pace > 0 {
			return fmt.Sprintf("%s is still not monitored: %s; it continues at %.0f %% of its speed", e.Device, plain(e.Problem), 100*e.Pace)
		}
	}
	return ""
}

// memoryErrors is the line about a GPU whose memory fails.
func memoryErrors(e orchestrator.DeviceEvent) string {
	return fmt.Sprintf("%s reports uncorrected memory errors (ECC, %d so far): results that it computes may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER, and reset it (nvidia-smi -r) when it is idle",
		e.Device, e.ECCUncorrected.Or(0))
}

// staysText is how fast a GPU is from which nothing is heard any more.
func staysText(pace float64) string {
	switch pace {
	case 0:
		return "; it stays paused"
	case 1:
		return ""
	}
	return fmt.Sprintf("; it stays at %.0f %% of its speed", 100*pace)
}

// memoryText says that it is others' memory that a GPU is slowed by.
func memoryText(e orchestrator.DeviceEvent) string {
	if percent, known := e.Memory.Get(); known && percent >= 85 {
		return fmt.Sprintf(", with %.0f %% of its memory used by others", percent)
	}
	return ""
}
