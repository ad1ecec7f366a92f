package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// Words returns what an event means to a reader, as a moment of the timeline; displays print it
// as well. The kind is empty if it means nothing.
func Words(event orchestrator.Event) (m Moment) {
	switch e := event.(type) {
	case orchestrator.WorkerLost:
		next := "starting another worker"
		switch {
		case e.Retired && e.RetryAfter > 0:
			next = "trying the device again in " + e.RetryAfter.Round(time.Second).String()
		case e.NeedsReset:
			next = "reset it when it is idle (nvidia-smi -r)"
		case e.Retired:
			next = "no other device remains"
		}
		m = Moment{Kind: momentLost, Device: e.Device, Text: ": " + e.Fault.Message + "; " + next}
	case orchestrator.DeviceRetired:
		m = Moment{Kind: momentLost, Device: e.Device, Text: fmt.Sprintf("is retired for this job: %s failed on it, but not on %s: %s; other devices compute them", Plural(e.Records, "record"), e.On, e.Message)}
	case orchestrator.WorkersScaled:
		if e.Workers > 1 || e.From > 1 { // a device that keeps its only worker is no news
			m = Moment{Kind: momentScaled, Device: e.Device, Text: strings.TrimPrefix(e.String(), e.Device)}
		}
	case orchestrator.ChunkGivenUp:
		some := ""
		if e.Failed < e.Records {
			some = Count(e.Failed) + " of the "
		}
		m = Moment{Kind: momentFailed, Text: fmt.Sprintf("%srecords %s to %s are marked as failed: %s", some, Count(e.First), Count(e.First+e.Records-1), e.Fault.Message)}
	case orchestrator.DeviceEvent:
		if kind, text := deviceWords(e); kind != "" {
			m = Moment{Kind: kind, Device: e.Device, Text: text}
		}
	case orchestrator.Paused:
		m = Moment{Kind: momentPaused, Text: "paused: workers wait after their current batch (run gpurun resume to continue)"}
	case orchestrator.Resumed:
		m = Moment{Kind: momentResumed, Text: "resumed"}
	case orchestrator.Stopping:
		m = Moment{Kind: momentStopping, Text: fmt.Sprintf("stopping: waiting up to %s for batches in flight (the second SIGINT or SIGTERM stops immediately)", e.Drain)}
	}
	return m
}

// deviceWords says what has changed about a device; "" if another event of the same sample does,
// or if it is no news.
func deviceWords(e orchestrator.DeviceEvent) (kind, text string) {
	at := ""
	if celsius, known := e.Temperature.Get(); known {
		at = fmt.Sprintf(" at %d°C", celsius)
	}
	speed := fmt.Sprintf("%.0f%%", 100*e.Pace)
	switch kind = momentSlowed; {
	case e.Kind == gpu.Throttle && e.Pace > 0:
		text = "slowed to " + speed + at
		if percent, known := e.Memory.Get(); known && percent >= 85 {
			text += fmt.Sprintf(", with %.0f%% of its memory used by others", percent)
		}
	case e.Kind == gpu.BecameCritical && e.Pace == 0:
		text = "paused" + at
	case e.Kind == gpu.Overheat:
		text = "is too hot" + at + ": returning its work to the queue"
	case e.Kind == gpu.Unseen:
		text = "is not monitored: " + e.Problem
		switch e.Pace {
		case 0:
			text += "; it stays paused"
		case 1:
		default:
			text += "; it stays at " + speed + " of its speed"
		}
	case e.Kind == gpu.MemoryErrors:
		text = fmt.Sprintf("reports uncorrected memory errors (ECC, %d so far): its results may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER and reset the GPU (nvidia-smi -r) when it is idle", e.ECCUncorrected.Or(0))
	case e.Kind == gpu.Clocks && e.Clocks == 0:
		return momentRecover, "has its clocks up again" + at
	case e.Kind == gpu.Clocks:
		text = "lowers its own clocks" + at + ": " + e.Clocks.String()
	case e.Kind == gpu.StateChange && e.Problem != "" && e.From == gpu.Critical && e.Pace > 0:
		text = "is still not monitored: " + e.Problem + "; it continues at " + speed + " of its speed"
	case e.Kind == gpu.Reset:
		return momentRecover, "was reset" + at
	case e.Kind == gpu.Seen:
		return momentRecover, "is monitored again" + at
	case e.Kind == gpu.Resume && e.Problem == "":
		return momentRecover, "resumed" + at
	default:
		kind = ""
	}
	return kind, text
}

// Plural is a number of things: "1 record", "2,000 records".
func Plural(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "ss"):
		noun += "e"
	}
	return Count(n) + " " + noun + "s"
}

// Count writes a number with separators: 1,234,567.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
