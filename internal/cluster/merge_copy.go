package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// mergeParallel is how many shards are copied or verified at a time: network file systems
// are faster with several streams.
const mergeParallel = 4

// piece is a shard's file that goes into the output.
type piece struct {
	shard   int
	commit  string // the file that commits it
	path    string
	sum     chunk.FileSum
	records int64
}

// damaged is the fault of a committed file that has changed.
func (p piece) damaged(format string, args ...any) error {
	return fault.BadShard.New("the output of shard %d is damaged: %s: %w", p.shard, p.path, fmt.Errorf(format, args...)).
		Set(p.commit)
}

// concatenate writes pieces to a file, in order, verifies their checksums on the way, and
// makes the file durable.
func (m *merge) concatenate(ctx context.Context, path string, pieces []piece) (chunk.FileSum, error) {
	var sum chunk.FileSum
	resumed := m.resume(path)
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return sum, storage("create the merged output", err)
	}
	defer out.Close()
	if len(pieces) == 0 && path == m.attempt.Output() {
		if err := m.writeEmpty(io.MultiWriter(out, &sum)); err != nil {
			return sum, storage("write the merged output", err)
		}
	}
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mergeParallel)
	var at int64
	for _, p := range pieces {
		begin := at
		at += p.sum.Bytes
		sum = sum.Join(p.sum)
		group.Go(func() error {
			if resumed && p.isAt(ctx, out, begin) {
				atomic.AddInt64(&m.merged.Resumed, p.records)
			} else if err := p.copyTo(ctx, io.NewOffsetWriter(out, begin)); err != nil {
				return err
			}
			crash.Point("merge-copied")
			records := done.Add(p.records)
			m.Progress(records, m.merged.Counts.Records)
			m.attempt.Follow(func() Progress { return Progress{Done: chunk.Counts{Records: records}} })
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return sum, err
	}
	if resumed {
		if err := out.Truncate(sum.Bytes); err != nil {
			return sum, storage("write the merged output", err)
		}
	}
	return sum, storage("write the merged output", cmp.Or(out.Sync(), out.Close()))
}

// resume takes over the file of an interrupted merge whose process has ended. What is in it
// is verified piece by piece.
func (m *merge) resume(path string) bool {
	return m.before != "" && link(filepath.Join(m.before, filepath.Base(path)), path) == nil
}

// isAt reports whether a file has the bytes of the piece at an offset.
func (p piece) isAt(ctx context.Context, file io.ReaderAt, offset int64) bool {
	var sum chunk.FileSum
	in := io.NewSectionReader(file, offset, p.sum.Bytes)
	for buffer := make([]byte, 1<<20); ctx.Err() == nil; {
		n, err := in.Read(buffer)
		_, _ = sum.Write(buffer[:n])
		if err != nil {
			return errors.Is(err, io.EOF) && sum == p.sum
		}
	}
	return false
}

// writeEmpty writes what an output without records consists of.
func (m *merge) writeEmpty(out io.Writer) error {
	format, err := encode.ByName(m.run.Format)
	if err != nil {
		return err
	}
	return format.EncodeNothing(out)
}

// copyTo copies a piece and verifies it.
func (p piece) copyTo(ctx context.Context, out io.Writer) error {
	if p.sum.Bytes == 0 && p.sum.CRC == 0 {
		return nil // an errors file without records may not exist
	}
	in, err := os.Open(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return p.damaged("it does not exist")
	}
	if err != nil {
		return storage("read shard", err)
	}
	defer in.Close()
	var sum chunk.FileSum
	buffer := make([]byte, 1<<20)
	for {
		n, readErr := in.Read(buffer)
		_, _ = sum.Write(buffer[:n])
		if sum.Bytes > p.sum.Bytes {
			return p.damaged("it has more than %d bytes", p.sum.Bytes)
		}
		if _, err := out.Write(buffer[:n]); err != nil {
			return storage("write the merged output", err)
		}
		switch {
		case errors.Is(readErr, io.EOF):
			if sum != p.sum {
				return p.damaged("it has %d bytes with checksum %s instead of %d with %s", sum.Bytes, chunk.CRC(sum.CRC), p.sum.Bytes, chunk.CRC(p.sum.CRC))
			}
			return nil
		case readErr != nil:
			return storage("read shard", readErr)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// writeParts makes one folder of the shards' parts. The parts get second names, so that no
// data is copied, and are renumbered.
func (m *merge) writeParts(ctx context.Context) error {
	out := m.attempt.Output()
	if err := os.Mkdir(filepath.Clean(out), 0o777); err != nil {
		return storage("create the merged output", err)
	}
	folders := make([]commit.Manifest, len(m.results))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(mergeParallel)
	for i, r := range m.results {
		group.Go(func() (err error) {
			folders[i], err = m.checkParts(groupCtx, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var parts []commit.ManifestPart
	for i, r := range m.results {
		for _, p := range folders[i].Parts {
			from := filepath.Join(m.run.ResultOutput(r), p.Name)
			if _, ending, ok := strings.Cut(p.Name, "."); ok {
				p.Name = fmt.Sprintf("part-%05d.%s", len(parts), ending)
			}
			if err := commit.LinkFile(from, filepath.Join(out, p.Name)); err != nil {
				return storage("link part", err)
			}
			parts = append(parts, p)
		}
		m.attempt.Follow(func() Progress {
			return Progress{Done: chunk.Counts{Records: r.First + r.Counts.Records - m.run.First}}
		})
	}
	format, err := encode.ByName(m.run.Format)
	if err != nil {
		return err
	}
	if _, late := m.overtaken(); late {
		return errElsewhere
	}
	manifest := commit.NewManifest(parts, m.merged.Counts, format)
	if err := commit.NameFolder(filepath.Clean(out), m.run.Output, manifest, m.Force); err != nil {
		return err
	}
	m.merged.Sum, err = chunk.SumFile(ctx, commit.ManifestPath(m.run.Output))
	return storage("read the merged output", err)
}

// checkParts verifies a shard's folder of parts.
func (m *merge) checkParts(ctx context.Context, r Result) (commit.Manifest, error) {
	dir := m.run.ResultOutput(r)
	p := piece{shard: r.Shard, commit: m.run.commitPath(r.Shard), path: dir, sum: r.Output}
	sum, err := chunk.SumFile(ctx, commit.ManifestPath(dir))
	if err != nil || sum != r.Output {
		return commit.Manifest{}, p.damaged("its manifest is missing or has changed")
	}
	manifest, err := commit.ReadManifest(dir)
	if err == nil {
		err = manifest.Check(ctx, dir)
	}
	if err != nil && ctx.Err() == nil {
		err = p.damaged("%w", err)
	}
	return manifest, err
}
