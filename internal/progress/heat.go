package progress

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// heat is the temperature of a GPU and its throttling state.
type heat struct {
	name    string
	celsius int
	known   bool
	unseen  bool    // monitoring fails: the temperature should be known but is not
	pace    float64 // the share of time in which it may compute
}

// warm records a sample.
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

// hottest returns the device's most noteworthy GPU: the slowest, or among equals the
// hottest.
func (d *deviceState) hottest() heat {
	worst := heat{pace: 1}
	for _, h := range d.heat {
		if h.pace < worst.pace || h.pace == worst.pace && !worst.unseen && (h.unseen || h.known && (!worst.known || h.celsius > worst.celsius)) {
			worst = h
		}
	}
	return worst
}

// degrees formats the temperature, "" if unknown.
func (h heat) degrees() string {
	switch {
	case h.unseen:
		return notMonitored
	case !h.known:
		return ""
	}
	return fmt.Sprintf("%d°C", h.celsius)
}

// notMonitored replaces the temperature of a GPU whose monitoring fails.
const notMonitored = "not monitored"

// over combines a worker's status with the heat: "computing, 71°C", "slowed, 84°C",
// "paused, not monitored".
func (h heat) over(status string) string {
	at, _, _ := strings.Cut(status, " ")
	switch {
	case h.pace == 0 && (at == "" || at == string(computing) || at == string(ready) || at == string(waiting)):
		status = "paused" // whatever its phase
	case h.pace < 1 && at == string(computing):
		status = "slowed" + strings.TrimPrefix(status, string(computing))
	}
	if text := h.degrees(); text != "" {
		return status + ", " + text
	}
	return status
}

// heatText summarizes the heat in a line: the devices that are slowed or not monitored,
// else the highest temperature; "" if no temperature is known.
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

// heatNotice returns the line for a change of a device's state, "" if it needs none.
func heatNotice(e orchestrator.DeviceEvent) string {
	degrees := ""
	if celsius, known := e.Temperature.Get(); known {
		degrees = fmt.Sprintf(" at %d°C", celsius)
	}
	switch e.Kind {
	case gpu.Throttle:
		if e.Pace > 0 {
			return fmt.Sprintf("%s slowed to %.0f %%%s%s", e.Device, 100*e.Pace, degrees, memoryText(e))
		}
	case gpu.BecameCritical:
		if e.Pace == 0 {
			return fmt.Sprintf("%s paused%s", e.Device, degrees)
		}
	case gpu.Overheat:
		return fmt.Sprintf("%s is too hot%s: returning its work to the queue", e.Device, degrees)
	case gpu.Unseen:
		return fmt.Sprintf("%s is not monitored: %s%s", e.Device, plain(e.Problem), staysText(e.Pace))
	case gpu.MemoryErrors:
		return memoryErrors(e)
	case gpu.Clocks:
		if heat, power := e.Clocks.Thermal(), e.Clocks.PowerCapped(); heat || power && e.To == gpu.Throttled {
			return fmt.Sprintf("%s lowers its own clocks%s: %s", e.Device, degrees, e.Clocks)
		}
	case gpu.Reset:
		return fmt.Sprintf("%s was reset%s", e.Device, degrees)
	case gpu.Seen:
		return fmt.Sprintf("%s is monitored again%s", e.Device, degrees)
	case gpu.Resume:
		if e.Problem == "" {
			return fmt.Sprintf("%s resumed%s", e.Device, degrees)
		}
	case gpu.StateChange:
		if e.Problem != "" && e.From == gpu.Critical && e.Pace > 0 {
			return fmt.Sprintf("%s is still not monitored: %s; it continues at %.0f %% of its speed", e.Device, plain(e.Problem), 100*e.Pace)
		}
	}
	return ""
}

// memoryErrors returns the line about a GPU with uncorrected memory errors.
func memoryErrors(e orchestrator.DeviceEvent) string {
	return fmt.Sprintf("%s reports uncorrected memory errors (ECC, %d so far): its results may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER and reset the GPU (nvidia-smi -r) when it is idle",
		e.Device, e.ECCUncorrected.Or(0))
}

// staysText describes the pace of a GPU whose monitoring fails.
func staysText(pace float64) string {
	switch pace {
	case 0:
		return "; it stays paused"
	case 1:
		return ""
	}
	return fmt.Sprintf("; it stays at %.0f %% of its speed", 100*pace)
}

// memoryText notes that a GPU is slowed because others use its memory.
func memoryText(e orchestrator.DeviceEvent) string {
	if percent, known := e.Memory.Get(); known && percent >= 85 {
		return fmt.Sprintf(", with %.0f %% of its memory used by others", percent)
	}
	return ""
}
