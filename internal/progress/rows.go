package progress

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/internal/view"
)

const (
	gap          = "  " // between columns
	percentWidth = len(" 100%")
	rateWidth    = len("999.9k/s")
	timeWidth    = len("ETA 59m59s")
	// narrowBar is the narrowest useful bar: texts are shortened only if the bar would
	// be narrower. A bar wider than wideBar shows nothing more and moves a row's numbers
	// far from its name.
	narrowBar = 10
	wideBar   = 72
	longName  = 16
)

// row is what is shown of a device or of the job.
type row struct {
	name       string
	done, size int64 // size is -1 if unknown
	about      bool  // size is an estimate
	rate       float64
	status     string
	failed     int64
	tokens     string // per second
	idle       bool   // no numbers to show
}

// columns are the widths of a row's parts; 0 leaves a part out. They are the same for all
// rows and do not change with every number.
//
//	GPU 0  [=====>    ]    57%  17,920/31,360  191.1k/s  computing
type columns struct {
	name, bar, percent, count, rate, status int

	short bool // counts are 17.9k/31.4k
}

// table lays out the rows of a job.
type table struct {
	view view.View
	// The widths of columns, which only grow.
	countWidth, statusWidth int
	compact                 bool // no rows for devices
}

// group is the workers of one device, or of several that compute together. They share a row.
type group struct {
	name    string
	workers []view.Worker
	devices []view.Device
}

func groups(v view.View) (list []group) {
	for _, w := range v.Workers {
		name, _, _ := strings.Cut(w.Name, " #")
		i := slices.IndexFunc(list, func(g group) bool { return g.name == name })
		if i < 0 {
			i = len(list)
			list = append(list, group{name: name, devices: v.DevicesOf(w)})
		}
		list[i].workers = append(list[i].workers, w)
	}
	return list
}

// columns fits rows into a width: it narrows the bar first, then drops texts, the least
// important first.
func (t *table) columns(width int) columns {
	t.widen()
	c := columns{
		name: t.nameWidth(), percent: percentWidth, count: t.countWidth,
		rate: rateWidth, status: t.statusWidth,
	}
	for _, shrink := range []func(){
		func() {},
		func() { c.short, c.count = true, min(c.count, len("999.9k/999.9k")) },
		func() { c.count = 0 },
		func() { c.rate = 0 },
		func() { c.status = min(c.status, timeWidth) },
		func() { c.status = 0 },
	} {
		shrink()
		c.bar = 0
		if room := width - c.width() - len(gap); room >= narrowBar {
			c.bar = min(wideBar, room)
			return c
		}
	}
	c.name = min(c.name, max(0, width-len(gap)-percentWidth))
	return c
}

// widen gives texts the width they need, and counts the width they will need. Columns
// never shrink: one that follows its text would jump.
func (t *table) widen() {
	whole := totalRow(t.view)
	t.statusWidth = max(t.statusWidth, len(phaseTexts[view.PhaseOpening]), textWidth(whole.tail()))
	t.countWidth = max(t.countWidth, textWidth(countText(max(whole.done, whole.size), whole.size, false)))
	for _, g := range groups(t.view) { // a chunk of a stream can exceed the total so far
		r := g.row()
		if g.again() > 0 || r.idle || !hottest(g.devices).Temperature.IsZero() {
			t.statusWidth = max(t.statusWidth, textWidth(r.status))
		}
		t.countWidth = max(t.countWidth, textWidth(countText(r.size, r.size, false)))
	}
}

// width is the width of a whole row.
func (c columns) width() int {
	width := c.name
	for _, part := range []int{c.bar, c.percent, c.count, c.rate, c.status} {
		if part > 0 {
			width += len(gap) + part
		}
	}
	return width
}

// text renders the row, no wider than its columns.
func (c columns) text(r row) string {
	percent, count, rate := "", "", ""
	if !r.idle {
		percent, count = percentText(r.done, r.size), countText(r.done, r.size, c.short)
		if r.about {
			count = countText(r.done, -1, c.short)
		}
	}
	if r.rate > 0 {
		rate = rateText(r.rate)
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%-*s", c.name, shorten(r.name, c.name))
	if c.bar > 0 {
		fmt.Fprintf(b, "%s[%s]", gap, filling(r.done, r.size, c.bar-len("[]")))
	}
	for _, part := range []struct {
		width int
		text  string
	}{{c.percent, percent}, {c.count, count}, {c.rate, rate}} {
		if part.width > 0 {
			fmt.Fprintf(b, "%s%*s", gap, part.width, shorten(part.text, part.width))
		}
	}
	switch tail := r.tail(); {
	case textWidth(tail) <= c.status:
		fmt.Fprintf(b, "%s%s", gap, tail)
	case c.status > 0: // the report shows the failures, too
		fmt.Fprintf(b, "%s%s", gap, shorten(r.status, c.status))
	}
	return strings.TrimRight(b.String(), " ")
}

// tail is the last column: the status and the failures so far.
func (r row) tail() string {
	text := r.status
	// The time has a fixed width, so that what follows does not move.
	if r.tokens != "" {
		text = fmt.Sprintf("%-*s%s%s", timeWidth, text, gap, r.tokens)
	}
	if r.failed > 0 {
		text = fmt.Sprintf("%-*s%s%s failed", timeWidth, text, gap, Count(r.failed))
	}
	return text
}

// filling is the inside of a bar: dots if the size is unknown.
func filling(done, size int64, width int) string {
	if size < 0 {
		return strings.Repeat(".", width)
	}
	full := width
	if done < size {
		full = int(float64(width) * float64(done) / float64(size))
	}
	full = max(0, min(full, width))
	tip := ""
	if full > 0 && full < width {
		full, tip = full-1, ">"
	}
	return fmt.Sprintf("%-*s", width, strings.Repeat("=", full)+tip)
}

// percentText rounds down: 100% means that all is done.
func percentText(done, size int64) string {
	switch {
	case size < 0:
		return ""
	case done >= size:
		return "100%"
	}
	return fmt.Sprintf("%d%%", max(0, int(100*float64(done)/float64(size))))
}

func countText(done, size int64, short bool) string {
	count := Count
	if short {
		count = shortCount
	}
	if size < 0 {
		return count(done)
	}
	return count(done) + "/" + count(size)
}

// row is the row of a group.
func (g group) row() row {
	counts := phases(g.workers)
	shown := phaseOrder[slices.IndexFunc(phaseOrder, func(p string) bool { return counts[p] > 0 })]
	r := row{name: g.name, status: shown}
	if n := counts[shown]; n < len(g.workers) {
		r.status = fmt.Sprintf("%s %d/%d", shown, n, len(g.workers))
	}
	if again := g.again(); again > 0 {
		r.status = "retrying " + plural(again, "record")
	}
	r.status = heated(r.status, hottest(g.devices))
	for _, w := range g.workers {
		r.done, r.size = r.done+w.Done, r.size+w.Records
	}
	if r.idle = r.size == 0; r.idle {
		r.size = 1 // an empty bar, not a full one
	} else if len(g.devices) > 0 {
		r.rate = g.devices[0].Rate
	}
	return r
}

// again counts the records that are computed again.
func (g group) again() (n int64) {
	for _, w := range g.workers {
		n += w.Again
	}
	return n
}

// totalRow is the job's row.
func totalRow(v view.View) row {
	r := row{name: "total", done: v.Reached(), rate: rateOf(v), failed: v.Done.Failed, tokens: tokenText(v)}
	r.size, r.about = v.Size()
	switch {
	case v.Report != nil && v.Report.Stop != nil:
		r.status = "stopped"
	case v.Report != nil:
		r.status = "in " + durationText(v.Report.Elapsed)
	case v.Phase == view.PhaseStopping:
		r.status = "stopping"
	case paused(v):
		r.status = "paused"
	case v.AllIn(view.PhaseHeld):
		r.status = phaseTexts[view.PhaseHeld]
	default:
		r.status = remaining(v)
	}
	return r
}

func (t *table) nameWidth() int {
	width := len("total")
	if t.compact {
		return width
	}
	for _, g := range groups(t.view) {
		width = max(width, textWidth(g.name))
	}
	return min(width, longName)
}

// textWidth is how many columns a text takes; no wide characters are shown.
func textWidth(text string) int { return utf8.RuneCountInString(text) }

// shorten cuts a text to a width.
func shorten(text string, width int) string {
	if textWidth(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}
