package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/files"
)

// writeParts makes one folder of the shards' parts. The parts get second names, so that no
// data is copied, and are renumbered.
func (m *merge) writeParts(ctx context.Context, format encode.Format, layout *columns.Layout) error {
	out := m.attempt.Output()
	if err := os.Mkdir(filepath.Clean(out), 0o777); err != nil {
		return storage("create the merged output", err)
	}
	folders := make([]commit.Manifest, len(m.shards))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(mergeParallel)
	for i, s := range m.shards {
		group.Go(func() (err error) {
			folders[i], err = m.checkParts(groupCtx, s, newContainer(format, layout))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(folders) == 0 && format.Table { // readers of an empty folder would find no columns
		folders = []commit.Manifest{{Parts: make([]commit.ManifestPart, 1)}}
	}
	var parts []commit.ManifestPart
	for i, folder := range folders {
		for _, p := range folder.Parts {
			to := p
			to.Name = fmt.Sprintf("part-%05d%s", len(parts), format.Ending())
			path, err := filepath.Join(out, to.Name), error(nil)
			if format.Table && p.Lines == 0 { // it may lack columns: the layout was unknown when it was written
				var sum chunk.FileSum
				sum, err = writeEmptyTable(path, table.Of(format.Name), *layout.Table)
				to.Bytes, to.CRC32C = sum.Bytes, chunk.CRC(sum.CRC)
			} else {
				err = commit.LinkFile(filepath.Join(m.shards[i].output, p.Name), path)
			}
			if err != nil {
				return storage("write part", err)
			}
			parts = append(parts, to)
		}
		if i < len(m.shards) {
			r := m.shards[i]
			m.attempt.Follow(func() Progress {
				return Progress{Done: chunk.Counts{Records: r.First + r.Counts.Records - m.run.First}}
			})
		}
	}
	if _, late := m.overtaken(); late {
		return errElsewhere
	}
	manifest := commit.NewManifest(parts, m.merged.Counts, format)
	if err := commit.NameFolder(filepath.Clean(out), m.run.Output, manifest, m.Force); err != nil {
		return err
	}
	var err error
	m.merged.Sum, err = chunk.SumFile(ctx, commit.ManifestPath(m.run.Output))
	return storage("read the merged output", err)
}

// writeEmptyTable writes a part without rows.
func writeEmptyTable(path string, f table.Format, s parquet.Schema) (sum chunk.FileSum, err error) {
	tail, err := f.Tail(s, nil, true)
	if err != nil {
		return sum, err
	}
	data := append(f.Head(s), tail...)
	_, _ = sum.Write(data)
	return sum, files.WriteDurably(path, data, files.PublicMode)
}

// checkParts verifies a shard's folder of parts.
func (m *merge) checkParts(ctx context.Context, s shardFiles, c container) (commit.Manifest, error) {
	p := &piece{shard: s.Shard, commit: m.run.commitPath(s.Shard), path: s.output, sum: s.Output}
	sum, err := chunk.SumFile(ctx, commit.ManifestPath(s.output))
	if err != nil || sum != s.Output {
		return commit.Manifest{}, p.damaged("its manifest is missing or has changed")
	}
	manifest, err := commit.ReadManifest(s.output)
	if err == nil {
		err = manifest.Check(ctx, s.output)
	}
	if err != nil && ctx.Err() == nil {
		err = p.damaged("%w", err)
	}
	for i := 0; err == nil && i < len(manifest.Parts); i++ {
		part := manifest.Parts[i]
		p.path, p.sum = filepath.Join(s.output, part.Name), chunk.FileSum{Bytes: part.Bytes, CRC: uint32(part.CRC32C)}
		err = p.locate(c)
	}
	return manifest, err
}
