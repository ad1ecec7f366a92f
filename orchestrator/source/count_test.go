package source_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/orchestrator/source"
)

func count(r io.Reader) (records int64, err error) {
	err = source.EachLine(r, 0, func(record.Line) bool { records++; return true })
	return records, err
}

// TestCountIsThatOfTheJob: machines that share a job count as many records as a job on one
// machine computes, whatever the file holds and wherever it is damaged.
func TestCountIsThatOfTheJob(t *testing.T) {
	random := chunktest.Seeded(t)
	inputs := [][]byte{[]byte("\v\n\u00a0\n1\n"), []byte("\n" + strings.Repeat(" ", 3<<20) + "1\n" + strings.Repeat("\t", 3<<20) + "\n")}
	for _, text := range chunktest.Nasty {
		inputs = append(inputs, []byte(text))
	}
	for range 30 {
		inputs = append(inputs, chunktest.Input(random, 8))
	}
	for _, data := range inputs {
		records, _ := chunktest.Records(data)
		whole := func() io.Reader { return iotest.HalfReader(bytes.NewReader(data)) }
		if n, err := count(whole()); err != nil || n != int64(len(records)) {
			t.Errorf("%.100q: counted %d, %v; want %d", data, n, err, len(records))
		}
		for at := 0; at < min(len(data)+1, 1000); at++ {
			damaged := func() io.Reader {
				return io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(errors.New("damaged")))
			}
			n, err := count(damaged())
			if want := sequenceRecords(t, damaged); err == nil || n != want {
				t.Fatalf("%.100q, damaged at byte %d: counted %d, %v; the job has %d", data, at, n, err, want)
			}
		}
		if n, want := sequenceRecords(t, whole), int64(len(records)); n != want {
			t.Errorf("%.100q: the job has %d records, want %d", data, n, want)
		}
	}
}

// sequenceRecords returns how many records a sequence has whose only section is a file that may
// be damaged.
func sequenceRecords(t *testing.T, open func() io.Reader) int64 {
	t.Helper()
	in, err := input.Open([]input.Section{{Files: []input.SectionFile{{Name: "in", Open: func(context.Context) (format.Lines, error) {
		return format.Lines{ReadCloser: io.NopCloser(open()), First: 1}, nil
	}}}}}, input.Options{Dir: filepath.Join(t.TempDir(), "spool"), ChunkRecords: 3, SkipBad: true, Ahead: math.MaxInt})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for err == nil {
		_, err = in.Next(t.Context())
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	records, _ := in.Total()
	return records
}
