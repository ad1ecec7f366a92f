package progress

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/internal/view"
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
		case d.Pace < 1:
			slowed = append(slowed, d.Device+" "+heated("slowed", d))
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
