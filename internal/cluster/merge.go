package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// MergeOptions say how to merge.
type MergeOptions struct {
	// Force replaces an existing output. Again also replaces the output of an earlier merge, if
	// it has changed since.
	Force, Again bool
	// LostAfter and Labels are as in Work.
	LostAfter time.Duration
	Labels    map[string]string
	// Progress is called with the number of merged records. It may be nil.
	Progress func(records, of int64)
	// Refit writes a shard of which every record failed again, from the job with this output to the
	// places of another attempt, in the layout of the run. It returns the checksums of its files, nil
	// if the shard has that layout. If it is nil, such a shard is refused.
	Refit func(ctx context.Context, output string, to *Attempt, layout columns.Layout) (*Result, error)
	// Describe is called when the output has its name, with the results of the shards that
	// have records, in order. It may be nil. A merge that is interrupted calls it again.
	Describe func(Merged, []Result)
}

// Merged is a finished merge.
type Merged struct {
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
	Output  string `json:"output"`
	Errors  string `json:"errors,omitempty"`
	chunk.Counts
	// Sum is the checksum of the output; of a folder of parts, of its manifest.
	Sum chunk.FileSum `json:"sum"`
	// Arrays are the checksums of the files in Manifest.Arrays.
	Arrays []chunk.FileSum `json:"arrays,omitempty"`
	// Skipped is how many input files could not be read to their end, counted once for each
	// shard that read them.
	Skipped  int       `json:"skipped_inputs,omitempty"`
	Finished time.Time `json:"finished"`

	// Already: an earlier merge has written the output.
	Already bool `json:"-"`
	// Resumed is how many records an interrupted merge had written.
	Resumed int64 `json:"-"`
}

// MissingError means that a run cannot be merged yet.
type MissingError struct {
	// Shards are those that are not committed; Of is how many the run has.
	Shards []Shard
	Of     int
	// Failed: the run ended without them, because each has failed too often.
	Failed bool
}

func (e *MissingError) Error() string {
	what := "are missing"
	if e.Failed {
		what = "failed"
	}
	return fmt.Sprintf("%d of %d shards %s: %s", len(e.Shards), e.Of, what, ArrayText(Missing(e.Shards)))
}

// missing returns the shards that are not committed; nil if all are.
func missing(shards []Shard) *MissingError {
	left := slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return !s.Unfinished() })
	if len(left) == 0 {
		return nil
	}
	return &MissingError{Shards: left, Of: len(shards)}
}

// ErrMerging means that another process is merging the run.
var ErrMerging = errors.New("another process is merging the run")

// merge is a merge in progress.
type merge struct {
	MergeOptions
	run     *Run
	results []Result
	shards  []shardFiles // of the results
	attempt *Attempt
	before  string // the folder of an interrupted merge whose process has ended; "" if there is none
	merged  Merged
	// replaces: the run was merged before, but its output is gone or must be replaced.
	replaces bool
}

// Merge verifies the shards and writes the output, in input order. It fails with a
// MissingError if some are not committed, and with ErrMerging if another process is at it.
// If it is interrupted, the next Merge continues its work if that one's process is known to
// have ended, and starts over otherwise. The output appears when it is complete.
func (r *Run) Merge(ctx context.Context, options MergeOptions) (Merged, error) {
	before, merged := r.alreadyMerged()
	if merged && !(options.Again && before.changed(r.Parts)) {
		return before, nil
	}
	m := &merge{MergeOptions: options, run: r, replaces: before.Run == r.ID}
	if m.Progress == nil {
		m.Progress = func(int64, int64) {}
	}
	shards, err := r.Watch(options.LostAfter).Shards(ctx)
	if err != nil {
		return Merged{}, err
	}
	if left := missing(shards); left != nil {
		return Merged{}, left
	}
	if err := m.readResults(); err != nil {
		return Merged{}, err
	}
	if err := m.claim(ctx); err != nil {
		return Merged{}, err
	}
	if m.attempt == nil { // another process has merged since
		done, _ := m.overtaken()
		return done, nil
	}
	return m.finish(ctx)
}

// alreadyMerged returns the finished merge, if there still is an output: failed records may
// have been retried in it since.
func (r *Run) alreadyMerged() (Merged, bool) {
	m, merged := r.lastMerge()
	_, err := os.Stat(m.Output)
	m.Already = merged && err == nil
	return m, m.Already
}

// lastMerge returns the finished merge, whatever has become of its output since.
func (r *Run) lastMerge() (m Merged, merged bool) {
	merged = readJSON(r.join(mergedFile), &m) == nil && m.Run == r.ID
	m.Output, m.Already = r.Output, merged // the folder may have moved with it
	return m, merged
}

// Merged reports whether the run is merged, and its output is still there.
func (r *Run) Merged() bool {
	_, merged := r.alreadyMerged()
	return merged
}

// changed reports whether the output has another size than the merge gave it.
func (m Merged) changed(parts bool) bool {
	path := m.Output
	if parts {
		path = commit.ManifestPath(path)
	}
	info, err := os.Stat(path)
	return err != nil || info.Size() != m.Sum.Bytes
}

// readResults reads the commits of all shards.
func (m *merge) readResults() (err error) {
	m.merged = Merged{Run: m.run.ID, Output: m.run.Output, Errors: m.run.Manifest.Errors}
	if m.results, err = m.run.Results(); err != nil {
		return err
	}
	for _, result := range m.results {
		m.merged.Counts.Add(result.Counts)
		m.merged.Skipped += result.Skipped
	}
	return nil
}

// claim claims the merge, once it is known that no other process is at it. It leaves attempt
// nil if the other process finishes meanwhile.
func (m *merge) claim(ctx context.Context) (err error) {
	watch := m.run.Watch(m.LostAfter)
	for {
		claims, err := m.run.claims()
		if err != nil {
			return err
		}
		s := Shard{Claims: claims[mergeKey], State: Pending}
		if s.Claims > 0 {
			if err := watch.claimed(&s, mergeKey); err != nil {
				return err
			}
		}
		switch {
		case s.State == Running && s.seen:
			return fault.ShardTaken.New("%w: pid %d on %s", ErrMerging, s.PID, s.Host)
		case s.State == Running:
			select {
			case <-time.After(beatInterval(watch.lostAfter) / 2):
				continue
			case <-ctx.Done():
				return stopped(ctx, ctx.Err())
			}
		}
		if _, done := m.overtaken(); done {
			return nil
		}
		a, err := m.run.newAttempt(-1, mergeKey, 0, m.Labels)
		if err != nil {
			return err
		}
		won, err := a.claimAfter(s.Claims)
		if err != nil {
			return err
		}
		if !won {
			continue
		}
		m.attempt, m.merged.Attempt = a, a.info.Attempt
		if s.Claims > 0 {
			m.before = watch.ended(m.run.claimPath(mergeKey, s.Claims))
		}
		return nil
	}
}

// finish writes the output in the attempt's folder and names it.
func (m *merge) finish(ctx context.Context) (Merged, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := m.attempt.live(beatInterval(m.run.Watch(m.LostAfter).lostAfter), cancel, func(string) {})
	defer stop()
	err := m.write(ctx)
	if done, ok := m.overtaken(); ok {
		return done, m.attempt.finish(endDuplicate, nil)
	}
	if err == nil {
		m.merged.Finished = time.Now().UTC()
		if m.Describe != nil {
			m.Describe(m.merged, m.results)
		}
		crash.Point("merge-described")
		if err = writeJSON(m.attempt.join(resultFile), m.merged); err == nil {
			crash.Point("merge-named")
			_, err = publish(m.attempt.join(resultFile), m.run.join(mergedFile))
		}
	}
	if err != nil {
		err = stopped(ctx, err)
		_ = m.attempt.finish(endState(err), err)
		return Merged{}, err
	}
	_ = m.attempt.finish(endCommitted, nil)
	return m.merged, nil
}

// overtaken returns the merge of another process, which took this one for lost. What that one
// has written stays: failed records may have been retried in it since.
func (m *merge) overtaken() (Merged, bool) {
	done, merged := m.run.lastMerge()
	return done, merged && !m.replaces
}

// Clean removes the outputs of all attempts of a merged run, corrected runs included,
// and reports whether there were any. What they were remains on record.
func (r *Run) Clean() (removed bool) {
	for number := 1; number <= r.number; number++ {
		dir := filepath.Join(numbered(Folder(r.Output), number), attemptsDir)
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			a := &Attempt{run: r, dir: filepath.Join(dir, entry.Name())}
			_, err := os.Lstat(a.Output())
			removed = removed || err == nil
			a.Discard()
		}
	}
	return removed
}

// shardFiles is a committed shard and where its files are: those of its attempt, or new ones that fit
// the layout of the run.
type shardFiles struct {
	Result
	output string
	errors string
	arrays []string
}

// collect finds the files of the shards. Where every record failed before any machine knew the layout,
// they are written again.
func (m *merge) collect(ctx context.Context, layout *columns.Layout) error {
	for _, r := range m.results {
		a := &Attempt{run: m.run, dir: m.run.attemptDir(r.Attempt)}
		s := shardFiles{Result: r, output: a.Output(), errors: a.Errors()}
		for _, array := range m.run.Arrays {
			s.arrays = append(s.arrays, a.Array(array))
		}
		if layout != nil && r.Succeeded == 0 && r.Failed > 0 && m.Refit != nil {
			a.dir = filepath.Join(m.refits(), key(r.Shard))
			refitted, err := m.Refit(ctx, s.output, a, *layout)
			if err != nil && ctx.Err() == nil {
				p := piece{shard: r.Shard, commit: m.run.commitPath(r.Shard), path: s.output}
				err = p.damaged("%w", err)
			}
			if err != nil {
				return err
			}
			if refitted != nil {
				s.output, s.Output, s.Arrays = a.Output(), refitted.Output, refitted.Arrays
				for i, array := range m.run.Arrays {
					s.arrays[i] = a.Array(array)
				}
			}
		}
		m.shards = append(m.shards, s)
	}
	return nil
}

// refits is the folder of the files that are written again.
func (m *merge) refits() string { return m.attempt.join("refits") }

// write writes the errors file and the arrays, and then the output.
func (m *merge) write(ctx context.Context) error {
	defer os.RemoveAll(m.refits())
	layout, err := m.run.Agreement().Layout()
	if err == nil {
		err = m.collect(ctx, layout)
	}
	if err != nil {
		return err
	}
	if layout == nil && m.run.Columns != nil { // no record has a result
		layout = new(m.run.Columns.Fallback())
	}
	if path := m.run.Manifest.Errors; path != "" {
		pieces := m.pieces(func(s shardFiles) (string, chunk.FileSum) { return s.errors, s.Errors })
		if _, err := m.writeFile(ctx, m.attempt.Errors(), lines{encode.Lines()}, pieces, path); err != nil {
			return err
		}
	}
	for i, a := range m.run.Arrays {
		pieces := m.pieces(func(s shardFiles) (string, chunk.FileSum) { return s.arrays[i], s.array(i) })
		sum, err := m.writeFile(ctx, m.attempt.Array(a), array{a, layout}, pieces, a.Path)
		if err != nil {
			return err
		}
		m.merged.Arrays = append(m.merged.Arrays, sum)
	}
	format, err := encode.ByName(m.run.Format)
	if err != nil {
		return err
	}
	if m.run.Parts {
		return m.writeParts(ctx, format, layout)
	}
	pieces := m.pieces(func(s shardFiles) (string, chunk.FileSum) { return s.output, s.Output })
	for i, s := range m.shards {
		pieces[i].records = s.Counts.Records
	}
	m.merged.Sum, err = m.writeFile(ctx, m.attempt.Output(), newContainer(format, layout), pieces, m.run.Output)
	return err
}

// pieces returns one of the files of each shard.
func (m *merge) pieces(file func(shardFiles) (path string, sum chunk.FileSum)) (all []*piece) {
	for _, s := range m.shards {
		p := &piece{shard: s.Shard, commit: m.run.commitPath(s.Shard)}
		p.path, p.sum = file(s)
		all = append(all, p)
	}
	return all
}

// writeFile joins pieces to a file of the attempt, and gives it its name.
func (m *merge) writeFile(ctx context.Context, path string, c container, pieces []*piece, name string) (chunk.FileSum, error) {
	sum, err := m.join(ctx, path, c, pieces)
	if err != nil {
		return sum, err
	}
	crash.Point("merge-written")
	if _, late := m.overtaken(); late {
		return sum, errElsewhere
	}
	return sum, commit.NameFile(path, name, m.Force)
}
