package progress

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// hottest returns the most noteworthy GPU: the slowest, or among equals the hottest.
func hottest(devices []view.Device) view.Device {
	var worst view.Device
	worst.Pace = 1
	for _, d := range devices {
		hotter := d.Problem != "" || !d.Temperature.IsZero() && (worst.Temperature.IsZero() || d.Temperature.Or(0) > worst.Temperature.Or(0))
		if d.Pace < worst.Pace || d.Pace == worst.Pace && worst.Problem == "" && hotter {
			worst = d
		}
	}
	return worst
}

// degrees formats the temperature, "" if unknown.
func degrees(d view.Device) string {
	if d.Problem != "" {
		return "not monitored" // it should be known but is not
	}
	if celsius, known := d.Temperature.Get(); known {
		return fmt.Sprintf("%d°C", celsius)
	}
	return ""
}

// heated adds the heat of a GPU to what its workers do: "computing, 71°C", "slowed, 84°C",
// "paused, not monitored".
func heated(status string, d view.Device) string {
	if rest, ok := strings.CutPrefix(status, "computing"); ok && d.Pace < 1 {
		status = "slowed" + rest
	}
	if text := degrees(d); text != "" {
		return status + ", " + text
	}
	return status
}

// heatText summarizes the heat in a line: the devices that are slowed or not monitored,
// else the highest temperature; "" if no temperature is known.
func heatText(v view.View) string {
	var slowed []string
	var top view.Device
	for _, g := range groups(v) {
		d := hottest(g.devices)
		if d.Problem == "" && !d.Temperature.IsZero() && d.Temperature.Or(0) >= top.Temperature.Or(0) {
			top = d
		}
		switch {
		case d.Pace == 0:
			slowed = append(slowed, d.Device+" "+heated("paused", d))
		case d.Pace < 1 && d.Problem != "":
			slowed = append(slowed, d.Device+" "+heated("slowed", d))
		case d.Pace < 1:
			slowed = append(slowed, strings.Join(strings.Fields(d.Device+" "+degrees(d)+" slowed"), " "))
		case d.Problem != "":
			slowed = append(slowed, d.Device+" "+degrees(d))
		}
	}
	switch {
	case len(slowed) > 0:
		return strings.Join(slowed, ", ")
	case !top.Temperature.IsZero():
		return "up to " + degrees(top)
	}
	return ""
}

// heatNotice returns the line for a change of a device's state, "" if it needs none.
func heatNotice(e orchestrator.DeviceEvent) string {
	at := ""
	if celsius, known := e.Temperature.Get(); known {
		at = fmt.Sprintf(" at %d°C", celsius)
	}
	switch e.Kind {
	case gpu.Throttle:
		if e.Pace > 0 {
			return fmt.Sprintf("%s slowed to %.0f %%%s%s", e.Device, 100*e.Pace, at, memoryText(e))
		}
	case gpu.BecameCritical:
		if e.Pace == 0 {
			return fmt.Sprintf("%s paused%s", e.Device, at)
		}
	case gpu.Overheat:
		return fmt.Sprintf("%s is too hot%s: returning its work to the queue", e.Device, at)
	case gpu.Unseen:
		return fmt.Sprintf("%s is not monitored: %s%s", e.Device, plain(e.Problem), staysText(e.Pace))
	case gpu.MemoryErrors:
		return memoryErrors(e)
	case gpu.Clocks:
		if heat, power := e.Clocks.Thermal(), e.Clocks.PowerCapped(); heat || power && e.To == gpu.Throttled {
			return fmt.Sprintf("%s lowers its own clocks%s: %s", e.Device, at, e.Clocks)
		}
	case gpu.Reset:
		return fmt.Sprintf("%s was reset%s", e.Device, at)
	case gpu.Seen:
		return fmt.Sprintf("%s is monitored again%s", e.Device, at)
	case gpu.Resume:
		if e.Problem == "" {
			return fmt.Sprintf("%s resumed%s", e.Device, at)
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
