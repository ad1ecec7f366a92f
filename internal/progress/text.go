package progress

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// notice is the line that an event is worth between bars or lines, "" if none.
func notice(event orchestrator.Event) string {
	switch e := event.(type) {
	case orchestrator.Notice:
		return e.Text
	case orchestrator.Planned:
		return planned(e.Plan)
	}
	return alarm(event)
}

// alarm is the line for what a person must know even with --quiet.
func alarm(event orchestrator.Event) string {
	switch e := event.(type) {
	case orchestrator.WorkerLost:
		next := "starting another worker"
		if e.Retired {
			next = "it takes no further part"
		}
		return fmt.Sprintf("%s: %s; %s%s", e.Device, e.Fault.Message, next, lastWords(e.Fault.Detail))
	case orchestrator.ChunkGivenUp:
		return fmt.Sprintf("records %s to %s are kept, marked as failed: %s",
			Count(e.First), Count(e.First+e.Records-1), e.Fault.Message)
	case orchestrator.Stopping:
		return "stopping: waiting for the batches in work (a second signal ends at once)"
	}
	return ""
}

// lastWords is the end of a dead process's output, indented below the line that
// reports its death.
func lastWords(detail string) string {
	if detail == "" {
		return ""
	}
	lines := strings.Split(detail, "\n")
	lines = lines[max(0, len(lines)-5):]
	return "\n  | " + strings.Join(lines, "\n  | ")
}

func planned(plan orchestrator.Plan) string {
	records := "a stream of records"
	if plan.Records >= 0 {
		records = plural(plan.Records, "record")
	}
	chunks := ""
	if plan.Chunks > 0 {
		chunks = fmt.Sprintf(" in %s", plural(plan.Chunks, "chunk"))
	}
	return fmt.Sprintf("%s%s, batches of %s, %s: %s", records, chunks, Count(int64(plan.BatchSize)),
		plural(int64(len(plan.Slots)), "worker"), slotNames(plan.Slots))
}

func slotNames(slots []orchestrator.Slot) string {
	const shown = 8
	var names []string
	for _, slot := range slots[:min(shown, len(slots))] {
		names = append(names, slot.Name)
	}
	if len(slots) > shown {
		names = append(names, fmt.Sprintf("… %s", slots[len(slots)-1].Name))
	}
	if len(names) == 0 {
		return "nothing to do"
	}
	return strings.Join(names, ", ")
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Count writes a number with separators: 1,234,567.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return sign + b.String()
}

// rateText is records a second, short: 45.2k/s.
func rateText(rate float64) string {
	switch {
	case rate >= 1e6:
		return fmt.Sprintf("%.1fM/s", rate/1e6)
	case rate >= 1e4:
		return fmt.Sprintf("%.1fk/s", rate/1e3)
	case rate >= 100:
		return fmt.Sprintf("%.0f/s", rate)
	}
	return fmt.Sprintf("%.1f/s", rate)
}

// durationText is a duration as people say it: 850ms, 12.3s, 3m12s, 62h3m.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
