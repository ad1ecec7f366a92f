package input

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input/format"
)

// TestCountIsThatOfTheJob: machines that share a job count as many records as a job on one
// machine computes, whatever the file holds and wherever it is damaged.
func TestCountIsThatOfTheJob(t *testing.T) {
	random := chunktest.Seeded(t)
	inputs := make([][]byte, 0, len(chunktest.Nasty)+30)
	for _, text := range chunktest.Nasty {
		inputs = append(inputs, []byte(text))
	}
	for range 30 {
		inputs = append(inputs, chunktest.Input(random, 8))
	}
	for _, data := range inputs {
		records, _ := chunktest.Records(data)
		whole := func() io.Reader { return iotest.OneByteReader(bytes.NewReader(data)) }
		if n, err := CountLines(whole()); err != nil || n != int64(len(records)) {
			t.Errorf("%q: counted %d, %v; want %d", data, n, err, len(records))
		}
		for at := range len(data) + 1 {
			damaged := func() io.Reader {
				return io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(errors.New("damaged")))
			}
			n, err := CountLines(damaged())
			if want := sequenceRecords(t, damaged); err == nil || n != want {
				t.Fatalf("%q, damaged at byte %d: counted %d, %v; the job has %d", data, at, n, err, want)
			}
		}
		if n, want := sequenceRecords(t, whole), int64(len(records)); n != want {
			t.Errorf("%q: the job has %d records, want %d", data, n, want)
		}
	}
}

// sequenceRecords returns how many records a sequence has whose only section is a file that may
// be damaged.
func sequenceRecords(t *testing.T, open func() io.Reader) int64 {
	t.Helper()
	source, err := Open([]Section{{Name: "in", Open: func(context.Context) (format.Lines, error) {
		return format.Lines{ReadCloser: io.NopCloser(open()), First: 1}, nil
	}}}, Options{Dir: filepath.Join(t.TempDir(), "spool"), ChunkRecords: 3, SkipBad: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, source)
	drain(t, source)
	records, _ := source.Total()
	return records
}
