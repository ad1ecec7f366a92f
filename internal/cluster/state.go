package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// State is what has become of a shard.
type State string

const (
	// Pending: no attempt has claimed it.
	Pending State = "pending"
	// Running: an attempt has claimed it, and is not known to have ended.
	Running State = "running"
	// Lost: the attempt has shown no sign of life for too long.
	Lost State = "lost"
	// Stopped: the attempt has ended early. The next one resumes.
	Stopped State = "stopped"
	// Failed: the attempt has ended with an error.
	Failed State = "failed"
	// Done: the shard is committed.
	Done State = "done"
)

// Shard is the state of a shard.
type Shard struct {
	Index int   `json:"shard"`
	State State `json:"state"`
	// First and Records are its range; Done of them are computed, Failed have failed. Answers
	// of further ones are logged: the next attempt does not compute those again.
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Answers int64 `json:"answers,omitempty"`
	// Rate is in records per second: now while it runs, on average when it is done.
	Rate float64 `json:"records_per_second"`
	// Attempt is the current or committed attempt; Host, PID and Labels are its process.
	Attempt string            `json:"attempt,omitempty"`
	Host    string            `json:"host,omitempty"`
	PID     int               `json:"pid,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Claims is how many attempts have claimed the shard; Failures of them failed.
	Claims   int `json:"claims"`
	Failures int `json:"failures,omitempty"`
	// Silent is how long this observer has seen no sign of life. Beat is the time of the last
	// one by the clock of its host.
	Silent float64   `json:"silent_seconds,omitempty"`
	Beat   time.Time `json:"beat,omitzero"`
	// Message is why it failed or stopped.
	Message string `json:"message,omitempty"`
	// Copy: the attempt is a copy, which a faster machine computes while a slower one still
	// computes the shard.
	Copy bool `json:"copy,omitempty"`

	seen    bool          // this observer has seen its attempt alive
	watched time.Duration // for how long it has known the attempt
	current int           // the claim of the attempt that is described
}

// Reached counts the records that are done or have an answer.
func (s Shard) Reached() int64 { return s.Done + s.Answers }

// Unfinished reports whether the shard still has to be computed.
func (s Shard) Unfinished() bool { return s.State != Done }

// DefaultLostAfter is how long an attempt may show no sign of life.
const DefaultLostAfter = time.Minute

// beatInterval is how often an attempt shows a sign of life.
func beatInterval(lostAfter time.Duration) time.Duration {
	return max(10*time.Millisecond, min(5*time.Second, lostAfter/6))
}

// Watch observes a run. Whether an attempt is alive is decided by this process's own clock,
// since clocks of other hosts may differ: it is alive as long as its beat changes.
type Watch struct {
	// Committed returns how many records an attempt has committed to its output, and how many
	// further ones have a logged answer. If it is nil, the shards show what attempts have reported
	// with their last sign of life.
	Committed func(output string) (records, answers int64)

	run       *Run
	lostAfter time.Duration
	attempts  map[string]*observed
	results   map[int]Result
}

// observed is what is known about an attempt.
type observed struct {
	info  attemptInfo
	ended *end
	beat  string    // its content
	last  beat      // decoded
	first time.Time // when this observer first saw the attempt
	since time.Time // when it first saw this content
	seen  bool      // it has changed since the first look
}

// Shards returns the state of every shard. An attempt counts as lost only after this
// observer has watched it for long enough, or if its process ran on this host and is gone.
func (w *Watch) Shards(ctx context.Context) ([]Shard, error) {
	claims, err := w.run.claims()
	if err != nil {
		return nil, err
	}
	committed, err := w.committed()
	if err != nil {
		return nil, err
	}
	shards := make([]Shard, w.run.Manifest.Shards)
	for i := range shards {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s := &shards[i]
		s.Index, s.State, s.Claims = i, Pending, claims[key(i)]
		s.First, s.Records = w.run.Range(i)
		switch {
		case committed[key(i)]:
			err = w.done(s)
		case s.Claims > 0:
			err = w.claimed(s, key(i))
			if err == nil && s.State != Running && w.run.isCommitted(i) { // since the folder was read
				err = w.done(s)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return shards, nil
}

// committed returns the keys of the committed shards.
func (w *Watch) committed() (map[string]bool, error) {
	entries, err := os.ReadDir(w.run.join(commitsDir))
	if err != nil {
		return nil, storage("read commits", err)
	}
	keys := make(map[string]bool, len(entries))
	for _, entry := range entries {
		if key, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			keys[key] = true
		}
	}
	return keys, nil
}

// done describes a committed shard.
func (w *Watch) done(s *Shard) error {
	result, known := w.results[s.Index]
	if !known {
		var err error
		if result, err = w.run.result(s.Index); err != nil {
			return err
		}
		w.results[s.Index] = result
	}
	s.State, s.Done, s.Failed, s.Answers, s.Rate = Done, result.Counts.Records, result.Failed, 0, result.Rate
	s.Attempt, s.Host, s.PID, s.Labels = result.Attempt, result.Host, result.PID, result.Labels
	return nil
}

// claimed describes a shard by the attempt that has claimed it last. A copy that did not get
// to its end leaves the shard to the attempt that it ran beside.
func (w *Watch) claimed(s *Shard, key string) error {
	for number := s.Claims; number > 0; number-- {
		o, err := w.observe(key, number)
		if err != nil {
			return err
		}
		if s.current == 0 {
			w.describe(s, o)
			if s.Copy = o.info.Beside > 0; s.Copy && s.State != Running {
				continue
			}
			s.current = number
		}
		if s.State != Failed {
			return nil // only then does it matter how often that happened
		}
		if o.ended != nil && o.ended.State == endFailed {
			s.Failures++
		}
	}
	return nil
}

// observe looks at the attempt of a claim.
func (w *Watch) observe(key string, number int) (*observed, error) {
	path := w.run.claimPath(key, number)
	o := w.attempts[path]
	if o == nil {
		o = &observed{first: time.Now(), since: time.Now()}
		if err := readJSON(path, &o.info); err != nil {
			return nil, storage("read claim", err)
		}
		w.attempts[path] = o
	}
	if o.ended != nil {
		return o, nil
	}
	dir := w.run.attemptDir(o.info.Attempt)
	var ended end
	switch err := readJSON(filepath.Join(dir, endFile), &ended); {
	case err == nil:
		o.ended = &ended
	case !errors.Is(err, os.ErrNotExist):
		return nil, storage("read attempt", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, beatFile))
	if err == nil && string(text) != o.beat {
		o.seen = o.seen || o.beat != ""
		o.beat, o.since = string(text), time.Now()
		_ = json.Unmarshal(text, &o.last) // it was renamed into place
	}
	return o, nil
}

// ended returns the folder of the attempt of a claim that was observed, if its process is known
// to have ended, so that its files no longer change. For any other attempt, lost ones included,
// it returns "".
func (w *Watch) ended(claim string) string {
	o := w.attempts[claim]
	if o == nil || o.ended == nil && !o.info.ended() {
		return ""
	}
	return w.run.attemptDir(o.info.Attempt)
}

// describe sets the state of a shard from its current attempt.
func (w *Watch) describe(s *Shard, o *observed) {
	s.Attempt, s.Host, s.PID, s.Labels = o.info.Attempt, o.info.Host, o.info.PID, o.info.Labels
	s.Done, s.Failed, s.Answers, s.seen = o.last.Done, o.last.Failed, o.last.Answers, o.seen
	s.Message, s.Beat, s.Silent, s.watched = "", time.Time{}, 0, time.Since(o.first)
	silent := time.Since(o.since)
	switch {
	case o.ended != nil && o.ended.State == endFailed:
		s.State, s.Message = Failed, o.ended.Message
	case o.ended != nil && o.ended.State == endStopped:
		s.State, s.Message = Stopped, o.ended.Message
	case o.ended != nil || o.info.ended() || silent >= w.lostAfter:
		s.State = Lost
	default:
		s.State, s.Rate = Running, o.last.Rate
	}
	if w.Committed != nil {
		w.count(s)
	}
	if s.State == Running || s.State == Lost {
		s.Beat = o.last.Time
		s.Silent = silent.Round(time.Second / 10).Seconds()
	}
}

// count sets what a shard's attempt has committed. A running one may have computed more.
func (w *Watch) count(s *Shard) {
	records, answers := w.Committed(w.run.outputOf(s.Attempt))
	if s.State == Running && s.Reached() >= records+answers {
		return
	}
	s.Done, s.Answers, s.Failed = records, answers, min(s.Failed, records)
}

// Missing returns the shards that are not committed.
func Missing(shards []Shard) (missing []int) {
	for _, s := range shards {
		if s.Unfinished() {
			missing = append(missing, s.Index)
		}
	}
	return missing
}
