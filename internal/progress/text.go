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
	"github.com/gpurun/gpurun/internal/view"
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
	case orchestrator.DeviceEvent: // a card at its power limit is no news, unless that slows it down
		if e.Kind == gpu.Clocks && !e.Clocks.Thermal() && !(e.Clocks.PowerCapped() && e.To == gpu.Throttled) {
			return ""
		}
	case orchestrator.WorkerLost:
		return words(e) + lastWords(e.Fault.Detail)
	case orchestrator.DeviceRetired:
		return words(e) + lastWords(e.Detail)
	}
	return words(event)
}

// words is the line of an event that is a moment of the timeline, too.
func words(event orchestrator.Event) string {
	m := view.Words(event)
	if m.Device != "" && !strings.HasPrefix(m.Text, ":") {
		m.Device += " "
	}
	return plain(m.Device + m.Text)
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

// alarm is notice for an event that is shown even with --quiet.
func alarm(event orchestrator.Event) string {
	switch e := event.(type) {
	case orchestrator.Notice:
		if !e.Alarm {
			return ""
		}
	case orchestrator.DeviceEvent:
		if e.Kind != gpu.MemoryErrors {
			return ""
		}
	case orchestrator.Planned, orchestrator.Resuming, orchestrator.WorkersScaled:
		return ""
	}
	return notice(event)
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

// Count writes a number with separators: 1,234,567.
var Count, plural = view.Count, view.Plural

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
