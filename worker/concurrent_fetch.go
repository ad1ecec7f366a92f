package worker

import (
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// Files of records are fetched ahead of the kernel: as many records wait for their files, or
// have them, as the kernel computes at a time. Each record is sent when its files are there,
// so a slow download delays no other record.

// fetchedFiles are the files of a record, or why it has none.
type fetchedFiles struct {
	flight  *flight
	group   *group
	files   [][]byte
	failure *fault.Error
}

// leastFetching is how many records may wait for their files, or for the kernel with them,
// whatever the kernel's number.
const leastFetching = 32

// mayFetch reports whether further records may be read, if they have files.
func (c *concurrent) mayFetch() bool {
	fetcher := c.worker.fetcher
	if fetcher == nil {
		return true
	}
	if len(c.fetching) >= max(leastFetching, fetcher.Concurrency()) || len(c.fetching)+len(c.ready) >= max(leastFetching, c.worker.host.info.Concurrency) {
		return false
	}
	return c.held().bytes < heldBatches*c.worker.setup.Records.BatchBytes || len(c.fetching)+len(c.ready)+len(c.flights) == 0
}

// fetch waits for the files of a record before it is sent.
func (c *concurrent) fetch(f *flight) {
	c.fetching[f.number] = f
	g, reader := f.group, f.group.lane.run.reader
	ctx := reader.ctx
	reader.fetch.arrive(ctx, g.task.pending[f.at], g.task.records[f.at], func(files [][]byte, failure *fault.Error) {
		select {
		case c.fetched <- fetchedFiles{f, g, files, failure}:
		case <-ctx.Done():
		}
	})
}

// takeFiles takes the files of a record, which is sent as soon as the kernel has room.
func (c *concurrent) takeFiles(got fetchedFiles) error {
	f, g := got.flight, got.group
	if c.fetching[f.number] != f {
		return nil // its chunk has ended
	}
	delete(c.fetching, f.number)
	if got.failure != nil {
		if notFetched(got.failure) {
			c.judge(got.failure)
		}
		return c.settle(f, verdict{fault: got.failure}, 0)
	}
	f.record = g.task.toCompute(f.at, f.at+1).WithFetched(g.lane.run.reader.fetch.names, got.files).At(0)
	g.holds(f, f.record.Size()-len(f.record.Bytes()))
	c.ready = insert(c.ready, f)
	return nil
}

// releaseFiles releases the files of a record that is settled.
func (g *group) releaseFiles(i int) {
	if g.task.pending == nil {
		return
	}
	f := g.records[i]
	g.holds(f, 0)
	f.record = plugins.Record{}
	g.task.pending[i].release()
}

// holds counts the memory of a record's files.
func (g *group) holds(f *flight, bytes int) {
	change := bytes - f.fileBytes
	f.fileBytes = bytes
	g.task.load.bytes, g.lane.held.bytes = g.task.load.bytes+change, g.lane.held.bytes+change
}

// insert adds a record to a list that is sorted by number.
func insert(list []*flight, f *flight) []*flight {
	at, _ := slices.BinarySearchFunc(list, f.number, func(other *flight, number int64) int { return int(other.number - number) })
	return slices.Insert(list, at, f)
}
