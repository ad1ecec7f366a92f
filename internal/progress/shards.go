package progress

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
)

// WriteRun shows a run that machines share, and its shards.
func WriteRun(w io.Writer, o cluster.Overview) {
	fmt.Fprintf(w, "%s: %s in %s\n", o.Output, plural(int64(len(o.Shards)), "shard"), o.Folder)
	var states []string
	for _, state := range cluster.States {
		if n := o.Count(state); n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	fmt.Fprintf(w, "%s; %s of %s records", strings.Join(states, ", "), Count(o.Reached()), Count(o.Records))
	if o.Failed > 0 {
		fmt.Fprintf(w, ", %s failed", Count(o.Failed))
	}
	if o.Rate > 0 {
		left := time.Duration(float64(o.Records-o.Reached()) / o.Rate * float64(time.Second))
		fmt.Fprintf(w, "; %s, about %s left", rateText(o.Rate), left.Round(time.Second))
	}
	fmt.Fprintln(w)
	if o.Answers > 0 {
		fmt.Fprintln(w, AnswersText(o.Answers))
	}
	table := NewTable(w)
	fmt.Fprintf(table, "SHARD\tSTATE\tRECORDS\tFAILED\tRATE\tWHERE\n")
	for _, group := range groupShards(o.Shards) {
		first, n := group[0], len(group)
		var done, records, failed int64
		for _, s := range group {
			done, records, failed = done+s.Reached(), records+s.Records, failed+s.Failed
		}
		index, rate, where := strconv.Itoa(first.Index), "", ""
		switch {
		case n > 1:
			index += fmt.Sprintf("-%d", group[n-1].Index)
		case first.Rate > 0:
			rate = rateText(first.Rate)
			fallthrough
		default:
			where = whereText(first)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", index, first.State, countText(done, records, false), failed, rate, where)
	}
	_ = table.Flush()
	switch {
	case o.Merged:
		fmt.Fprintf(w, "merged into %s\n", o.Output)
	case o.Done == o.Records && o.Count(cluster.Done) == len(o.Shards):
		fmt.Fprintf(w, "all shards are done: gpurun submit merge %s\n", o.Output)
	}
}

// fewShards is up to how many shards each gets a line.
const fewShards = 40

// groupShards puts neighbors that are done or pending into one line if there are many.
func groupShards(shards []cluster.Shard) (groups [][]cluster.Shard) {
	for _, s := range shards {
		if n := len(groups); n > 0 && len(shards) > fewShards && (s.State == cluster.Done || s.State == cluster.Pending) && groups[n-1][0].State == s.State {
			groups[n-1] = append(groups[n-1], s)
			continue
		}
		groups = append(groups, []cluster.Shard{s})
	}
	return groups
}

// whereText says who computes a shard, and what is wrong with it.
func whereText(s cluster.Shard) string {
	if s.State == cluster.Pending {
		return ""
	}
	text := s.Host
	if job := s.Labels["SLURM_ARRAY_JOB_ID"]; job != "" {
		text += fmt.Sprintf(" (job %s_%s)", job, s.Labels["SLURM_ARRAY_TASK_ID"])
	} else if pod := s.Labels["POD_NAME"]; pod != "" {
		text += fmt.Sprintf(" (pod %s)", pod)
	} else {
		text += fmt.Sprintf(" (pid %d)", s.PID)
	}
	switch {
	case s.State == cluster.Lost:
		text += ": no sign of life"
	case s.State == cluster.Running && time.Since(s.Beat) > cluster.DefaultLostAfter:
		text += fmt.Sprintf(": last sign of life %s ago by its clock", time.Since(s.Beat).Round(time.Second))
	case s.Message != "":
		line, _, _ := strings.Cut(s.Message, "\n")
		text += ": " + line
	}
	switch {
	case s.Copy:
		text += ", a copy of what a slower machine computes"
	case s.Claims > 1:
		text += fmt.Sprintf(", attempt %d", s.Claims)
	}
	return text
}

// StateText describes a shard that is missing.
func StateText(s cluster.Shard) string {
	text := string(s.State)
	if where := whereText(s); where != "" {
		text += " on " + where
	}
	return text
}
