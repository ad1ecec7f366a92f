package view

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The course of a job is kept in a file in its folder, so that it survives kill -9 and
// the next run continues it. The file has one line of JSON per point and per moment. Points
// are thinned out in memory, and then the file is written again, so it never has more
// lines than maxLines.
const (
	historyFile = "history"
	maxLines    = 2*maxPoints + 4*maxMoments
	// maxHistory is far more than the file ever has; a larger one is not ours.
	maxHistory = 256 << 20
)

// line is one line of the file: one of its members.
type line struct {
	Columns *columns `json:"columns,omitempty"`
	Point   *point   `json:"point,omitempty"`
	Moment  *Moment  `json:"moment,omitempty"`
}

// columns describes the points that follow.
type columns struct {
	Interval float64  `json:"interval_seconds"`
	Devices  []string `json:"devices"`
}

// disk writes the file from a goroutine of its own: a slow disk must not stop the job.
type disk struct {
	path    string
	work    chan piece
	ended   chan struct{}
	lines   int
	columns int  // how many devices the last columns had
	stale   bool // the file must be written again
}

// piece is what the goroutine writes: lines to append, or the whole file.
type piece struct {
	data  []byte
	whole bool
}

func openDisk(folder string) *disk {
	d := &disk{path: filepath.Join(folder, historyFile), work: make(chan piece, 64), ended: make(chan struct{}), stale: true}
	go d.run()
	return d
}

// append writes a line, unless the disk is too slow.
func (d *disk) append(l line) {
	data, err := json.Marshal(l)
	if err != nil {
		return
	}
	d.lines++
	select {
	case d.work <- piece{data: append(data, '\n')}:
	default:
		d.stale = true // a line is missing
	}
}

// rewrite replaces the file.
func (d *disk) rewrite(h *history, t *timeline) {
	select {
	case d.work <- piece{data: encodeFile(h, t), whole: true}:
		d.lines, d.columns, d.stale = len(h.points)+len(t.moments), len(h.names), false
	default:
	}
}

// close writes what is left. It waits for a hanging disk only briefly.
func (d *disk) close() {
	close(d.work)
	select {
	case <-d.ended:
	case <-time.After(time.Second):
	}
}

func (d *disk) run() {
	defer close(d.ended)
	var file *os.File
	for p := range d.work {
		if p.whole {
			if file != nil {
				file.Close()
			}
			file = d.replace(p.data)
			continue
		}
		if file != nil {
			_, _ = file.Write(p.data)
		}
	}
	if file != nil {
		file.Close()
	}
}

// replace writes the file aside, so that a kill leaves the old one or the new one, and
// returns it open; nil if that fails: the job does not depend on it.
func (d *disk) replace(data []byte) *os.File {
	aside := d.path + ".new"
	_ = os.Remove(aside)
	file, err := os.OpenFile(aside, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	if _, err = file.Write(data); err == nil {
		err = os.Rename(aside, d.path)
	}
	if err != nil {
		file.Close()
		_ = os.Remove(aside)
		return nil
	}
	return file
}

// encodeFile returns the content of the file.
func encodeFile(h *history, t *timeline) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	_ = encoder.Encode(line{Columns: &columns{Interval: max(h.interval, time.Second).Seconds(), Devices: h.names}})
	for _, p := range h.points {
		_ = encoder.Encode(line{Point: &p})
	}
	for _, m := range t.moments {
		_ = encoder.Encode(line{Moment: &m})
	}
	return out.Bytes()
}

// load reads the file of a job folder. What a kill has cut off, or what is damaged, is
// left out: there is no other copy.
func load(folder string) (h history, t timeline) {
	file, err := os.OpenFile(filepath.Join(folder, historyFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return h, t
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxHistory))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch {
		case l.Columns != nil:
			h.names, h.interval = l.Columns.Devices, time.Duration(l.Columns.Interval*float64(time.Second))
		case l.Point != nil:
			h.points = append(h.points, *l.Point)
		case l.Moment != nil:
			t.put(*l.Moment)
		}
	}
	return h, t
}
