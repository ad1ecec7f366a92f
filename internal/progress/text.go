package progress

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// notice returns the line to print for an event, "" if none.
func notice(event orchestrator.Event) string {
	switch e := event.(type) {
	case orchestrator.Notice:
		return plain(e.Text)
	case orchestrator.Planned:
		return planned(e.Plan)
	case orchestrator.Resuming:
		return resuming(e)
	case orchestrator.DeviceEvent:
		return heatNotice(e)
	case orchestrator.WorkersScaled:
		return scaledText(e)
	}
	return alarm(event)
}

// resuming describes what earlier runs have done.
func resuming(e orchestrator.Resuming) string {
	of := ""
	if e.Total >= 0 {
		of = " of " + Count(e.Total)
	}
	if e.Done == 0 && e.Answers > 0 {
		return fmt.Sprintf("resuming: %s%s records have a logged answer and are not sent again", Count(e.Answers), of)
	}
	text := fmt.Sprintf("resuming: %s%s records done", Count(e.Done), of)
	if e.Answers > 0 {
		text += fmt.Sprintf("; %s logged and not sent again", plural(e.Answers, "more answer"))
	}
	return text
}

// alarm returns the line for an event that is shown even with --quiet, "" if none.
func alarm(event orchestrator.Event) string {
	switch e := event.(type) {
	case orchestrator.Notice:
		if e.Alarm {
			return plain(e.Text)
		}
	case orchestrator.WorkerLost:
		next := "starting another worker"
		switch {
		case e.Retired && e.RetryAfter > 0:
			next = "trying the device again in " + etaText(e.RetryAfter)
		case e.NeedsReset:
			next = "reset it when it is idle (nvidia-smi -r)"
		case e.Retired:
			next = "no other device remains"
		}
		return fmt.Sprintf("%s: %s; %s%s", e.Device, plain(e.Fault.Message), next, lastWords(e.Fault.Detail))
	case orchestrator.DeviceRetired:
		return fmt.Sprintf("%s is retired for this job: %s failed on it, but not on %s: %s; other devices compute them%s",
			e.Device, plural(e.Records, "record"), e.On, plain(e.Message), lastWords(e.Detail))
	case orchestrator.DeviceEvent:
		if e.Kind == gpu.MemoryErrors {
			return memoryErrors(e)
		}
	case orchestrator.ChunkGivenUp:
		return fmt.Sprintf("%srecords %s to %s are marked as failed: %s",
			some(e.Failed, e.Records), Count(e.First), Count(e.First+e.Records-1), plain(e.Fault.Message))
	case orchestrator.Paused:
		return "paused: workers wait after their current batch (run gpurun resume to continue)"
	case orchestrator.Resumed:
		return "resumed"
	case orchestrator.Stopping:
		return fmt.Sprintf("stopping: waiting up to %s for batches in flight (the second SIGINT or SIGTERM stops immediately)", e.Drain)
	}
	return ""
}

// scaledText reports a change of a device's workers, and why it has no more. A device that
// keeps its only worker is not worth a line.
func scaledText(e orchestrator.WorkersScaled) string {
	if e.Workers == 1 && e.From == 1 {
		return ""
	}
	return e.String()
}

// lastWords is the end of a dead process's output, indented below the line that reports
// its exit.
func lastWords(detail string) string {
	var lines []string
	for line := range strings.Lines(detail) {
		if line = plain(line); line != "" {
			lines = append(lines, "\n  | "+line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-5):], "")
}

func planned(plan orchestrator.Plan) string {
	records := "a stream of records"
	switch {
	case plan.Records >= 0:
		records = plural(plan.Records, "record")
	case plan.Files > 0:
		records = "the records of " + plural(int64(plan.Files), "file")
	}
	chunks := ""
	if plan.Chunks > 0 {
		chunks = fmt.Sprintf(" in %s", plural(plan.Chunks, "chunk"))
	}
	var names []string
	for _, slot := range plan.Slots {
		names = append(names, slot.Name)
	}
	return fmt.Sprintf("%s%s, %s, %s: %s", records, chunks, plan.Flight, plural(int64(len(names)), "worker"), cmp.Or(slotNames(names), "nothing to do"))
}

// slotNames lists the devices of slots: "GPU 0-7", "GPU 0, GPU 2, 2 each"; "" if there are none.
func slotNames(slots []string) string {
	var names []string
	for _, slot := range slots {
		if name, _, _ := strings.Cut(slot, " #"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := joinNames(names)
	if each := len(slots) / len(names); each > 1 {
		text += fmt.Sprintf(", %d each", each)
	}
	return text
}

// joinNames lists names and shortens consecutive numbers to a range.
func joinNames(names []string) string {
	const shown = 8
	kind, from, numbered := cutNumber(names[0])
	run := numbered && len(names) > 2
	for i, name := range names {
		k, n, ok := cutNumber(name)
		run = run && ok && k == kind && n == from+i
	}
	switch {
	case run:
		return fmt.Sprintf("%s-%d", names[0], from+len(names)-1)
	case len(names) > shown:
		return strings.Join(names[:shown], ", ") + ", … " + names[len(names)-1]
	}
	return strings.Join(names, ", ")
}

// cutNumber cuts "GPU 3" into "GPU" and 3.
func cutNumber(name string) (kind string, number int, ok bool) {
	kind, digits, ok := strings.Cut(name, " ")
	number, err := strconv.Atoi(digits)
	return kind, number, ok && err == nil
}

// escapes matches what a terminal would act on: colors, cursor moves, titles.
var escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\a\x1b]*(\a|\x1b\\)?|.)?`)

// plain turns foreign text into one line that cannot tear the bars. Of a line that was
// overwritten with \r, such as a progress bar, it keeps the last state.
func plain(text string) string {
	text = escapes.ReplaceAllString(strings.TrimRight(text, "\r\n \t"), "")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.Join(lines, "\n"))
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

// shortCount formats a number briefly: 17.9k.
func shortCount(n int64) string {
	if n < 1e4 {
		return Count(n)
	}
	return scaled(float64(n))
}

// scaled formats a number with at most four digits: 45.2k, 1.2M, 3.4G. It uses the next
// unit where rounding would give five.
func scaled(x float64) string {
	switch {
	case x < 999.95e3:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x < 999.95e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	}
	return fmt.Sprintf("%.1fG", x/1e9)
}

// rateText formats records per second: 45.2k/s.
func rateText(rate float64) string {
	switch {
	case rate >= 9999.5:
		return scaled(rate) + "/s"
	case rate >= 99.95:
		return Count(int64(math.Round(rate))) + "/s"
	}
	return fmt.Sprintf("%.1f/s", rate)
}

// durationText formats a duration: 850ms, 12.3s, 3m12s, 62h3m.
func durationText(d time.Duration) string {
	if d = d.Round(time.Millisecond); d < time.Second {
		return d.String()
	}
	if tenths := d.Round(time.Second / 10); tenths < time.Minute {
		return fmt.Sprintf("%.1fs", tenths.Seconds())
	}
	if d = d.Round(time.Second); d < time.Hour {
		return d.String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// etaText formats an estimate, without tenths of a second.
func etaText(d time.Duration) string {
	if d = max(time.Second, d.Round(time.Second)); d < time.Minute {
		return d.String()
	}
	return durationText(d)
}

// latencyText is a duration that may be far below a millisecond.
func latencyText(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return durationText(d)
}

// some begins a sentence about a part of all records of a range: "3 of the "; "" for all.
func some(n, all int64) string {
	if n == all {
		return ""
	}
	return Count(n) + " of the "
}
