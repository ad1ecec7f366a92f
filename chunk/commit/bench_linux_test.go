package commit

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// BenchmarkCommitter measures what a record costs the goroutine that commits, which there is one of
// in a job: journal, cut, durable points and appending, of texts of 400 bytes with a vector of 128
// floats. Encoding, which other goroutines do, is not in it; the target is 5 µs for any format.
//
//	go test -run '^$' -bench Committer -benchtime 3x ./chunk/commit
func BenchmarkCommitter(b *testing.B) {
	const segments, records, width = 40, 1000, 128
	random := rand.New(rand.NewPCG(1, 2))
	var vectors []byte
	for range records * width {
		vectors = binary.LittleEndian.AppendUint32(vectors, math.Float32bits(float32(random.NormFloat64())))
	}
	layout := columns.Layout{Columns: []columns.Column{{Name: "v", Kind: columns.Float32, Width: width}}}
	table := layout
	table.Table = &parquet.Schema{Columns: []parquet.Column{
		{Name: "id", Type: parquet.Int64}, {Name: "text", Type: parquet.String}, {Name: "v", Type: parquet.Float32, Width: width, Typed: true},
	}}
	for _, test := range []struct {
		name, format string
		layout       *columns.Layout
	}{{"lines", "jsonl", nil}, {"gzip", "jsonl.gz", nil}, {"zstd", "jsonl.zst", nil}, {"array", "jsonl", &layout}, {"parquet", "parquet", &table}} {
		b.Run(test.name, func(b *testing.B) {
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				j := &rowJob{job: newJob(b)}
				j.options = Options{Path: j.out, WorkDir: j.work(), Format: format(b, test.format), Journal: j.journal(b)}
				if test.layout != nil {
					j.layout, j.options.Layout = *test.layout, columns.NewShared(nil, test.layout)
				}
				if test.name == "array" {
					j.options.Arrays = []Array{{Path: j.out + ".npy"}}
				}
				var all []chunk.Segment
				for first := range int64(segments) {
					all = append(all, j.texts(b, first*records, records, vectors))
				}
				b.StartTimer()
				spent += j.commit(b, all)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/1e3/float64(b.N*segments*records), "committer-µs/record")
		})
	}
}

// texts makes a part of texts with vectors.
func (j *rowJob) texts(b *testing.B, first, records int64, vectors []byte) chunk.Segment {
	j.made++
	rows := j.layout.Table != nil
	part := NewPart(PartOptions{
		Path:  fmt.Sprintf("%s/part-%d", j.parts(), j.made),
		Chunk: chunk.Chunk{File: "in", First: first, Line: first + 1}, Rows: j.options.Layout != nil, Store: StoreOf(j.options.Format),
	})
	size := len(vectors) / int(records)
	for id := first; id < first+records; id++ {
		vector := vectors[int(id-first)*size:][:size]
		o := Outcome{Lines: fmt.Appendf(nil, "{\"id\":%d,\"text\":%q}\n", id, strings.Repeat(fmt.Sprint("lorem ipsum ", id), 24)), Values: vector}
		switch {
		case rows:
			row, err := j.layout.Table.Rows().Append(nil, o.Lines[:len(o.Lines)-1], [][]byte{vector})
			chunktest.Must(b, err)
			o.Lines, o.Values = row, columns.AppendEntry(nil, int64(len(row)), true)
		case j.options.Layout == nil:
			o.Values = nil
		}
		chunktest.Must(b, part.Write(o))
	}
	segment, err := part.Close(chunk.Chunk{File: "in", First: first + records, Line: first + records + 1})
	chunktest.Must(b, err)
	return segment
}

// commit commits segments as a job does, and returns the processor time that this goroutine has
// taken for that.
func (j *rowJob) commit(b *testing.B, all []chunk.Segment) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime(b)
	o, err := Create(j.options)
	chunktest.Must(b, err)
	for _, s := range all {
		chunktest.Must(b, o.Commit(s))
		select {
		case <-o.Encoded():
			chunktest.Must(b, o.Land())
		default:
		}
	}
	chunktest.Must(b, o.Finish())
	return threadTime(b) - before
}

func threadTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	chunktest.Must(b, unix.Getrusage(unix.RUSAGE_THREAD, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
