package input

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
)

// blobsOf returns two blobs of a record: bytes of different lengths, a null, an empty value.
func blobsOf(record int64) []format.Blob {
	data := bytes.Repeat([]byte(fmt.Sprint(record, ";")), int(record%5)*100)
	one, two := format.Blob{Kind: format.BytesBlob, Data: data}, format.Blob{Kind: format.StructBlob | format.PathBlob, Path: []byte("a\n")}
	switch record % 3 {
	case 0:
		two = format.Blob{}
	case 1:
		two.Kind, two.Data = two.Kind|format.BytesBlob, data
	}
	return []format.Blob{one, two}
}

// withBlobs is a section of records with blobs; change alters those of a record.
func withBlobs(records int64, change func(record int64, blobs []format.Blob)) Section {
	open := func(context.Context) (format.Lines, error) {
		var text strings.Builder
		var queue format.BlobQueue
		for i := range records {
			fmt.Fprintf(&text, "{\"id\":%d}\n", i)
			blobs := blobsOf(i)
			change(i, blobs)
			queue.Add(blobs)
		}
		return format.Lines{ReadCloser: io.NopCloser(strings.NewReader(text.String())), First: 1, Blobs: queue.Next}, nil
	}
	return Section{Files: []SectionFile{{Name: "a", Open: open}}}
}

func unchanged(int64, []format.Blob) {}

// checkBlobs compares the blobs of the records of a chunk.
func checkBlobs(t *testing.T, c chunk.Chunk) {
	t.Helper()
	blobs := NewBlobs(c, 2)
	defer blobs.Close()
	for i := c.First; i < c.First+c.Records; i++ {
		got, err := blobs.Read(i)
		if err != nil {
			t.Fatal(err)
		}
		for k, want := range blobsOf(i) {
			if got[k].Kind != want.Kind || !bytes.Equal(got[k].Data, want.Data) || !bytes.Equal(got[k].Path, want.Path) {
				t.Fatalf("record %d: blob %d is %d of %d bytes, want %d of %d", i, k, got[k].Kind, len(got[k].Data), want.Kind, len(want.Data))
			}
		}
	}
}

// Blobs are found in a chunk, in the parts that it is split into, and after an offset.
func TestBlobs(t *testing.T) {
	for _, limits := range []Limits{{}, {Offset: 7}, {Offset: 3, Limit: 9}} {
		dir := t.TempDir() + "/spool"
		s, err := Open([]Section{withBlobs(40, unchanged)}, Options{Dir: dir, ChunkRecords: 16, Blobs: 2, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for {
			c, err := s.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			checkBlobs(t, c)
			var batch Batch
			r, err := OpenReader(c, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for r.Read(&batch, 3, 1<<20) == nil {
				checkBlobs(t, batch.From(0))
				alone, after := batch.Alone(len(batch.Records) - 1)
				checkBlobs(t, alone)
				if after.Records > 0 {
					checkBlobs(t, after)
				}
				batch.Release()
			}
			r.Close()
			total += c.Records
			s.Release(c)
			if _, err := os.Stat(c.BlobFile()); !os.IsNotExist(err) {
				t.Errorf("the blobs of a released chunk: %v", err)
			}
		}
		if want := min(40-limits.Offset, max(limits.Limit, 40*int64(1-min(1, limits.Limit)))); total != want {
			t.Errorf("%+v: %d records, want %d", limits, total, want)
		}
		s.Close()
	}
}

// A chunk ends where its lines and blobs are large.
func TestLargeBlobsEndChunks(t *testing.T) {
	large := make([]byte, spoolBytes/3)
	grow := func(_ int64, blobs []format.Blob) { blobs[0].Data = large }
	s, err := Open([]Section{withBlobs(7, grow)}, Options{Dir: t.TempDir() + "/spool", ChunkRecords: 100, Blobs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c, err := s.Next(t.Context()); err != nil || c.Records != 3 {
		t.Errorf("%d records, %v", c.Records, err)
	}
}

// A resumed source refuses other blobs, even of records that are done, and takes the same.
func TestResumeComparesBlobs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(int64, []format.Blob)
		same   bool
	}{
		"the same": {unchanged, true},
		"a byte": {func(i int64, blobs []format.Blob) {
			if i == 3 {
				blobs[0].Data[5]++
			}
		}, false},
		"a kind": {func(i int64, blobs []format.Blob) {
			if i == 3 {
				blobs[1].Kind = format.BytesBlob
			}
		}, false},
		"a path": {func(i int64, blobs []format.Blob) {
			if i == 4 {
				blobs[1].Path = []byte("b\n")
			}
		}, false},
	} {
		dir := t.TempDir()
		read := func(section Section, earlier Earlier) error {
			log, err := OpenLog(dir + "/log")
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			s, err := Open([]Section{section}, Options{Dir: dir + "/spool", ChunkRecords: 16, Blobs: 2, Log: log, Earlier: earlier})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for {
				c, err := s.Next(t.Context())
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				checkBlobs(t, c)
			}
		}
		if err := read(withBlobs(40, unchanged), nil); err != nil {
			t.Fatal(err)
		}
		if err := read(withBlobs(40, test.change), allDone{}); (err == nil) != test.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// allDone says that an earlier run has computed everything.
type allDone struct{}

func (allDone) Holds(int64, int64) bool               { return true }
func (allDone) Remaining([]chunk.Chunk) []chunk.Chunk { return nil }

// FuzzBlobs reads damaged files of blobs: an error, or values inside the file.
func FuzzBlobs(f *testing.F) {
	f.Add([]byte("\x0b\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00ab\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), int64(0))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, record int64) {
		c := chunk.Chunk{File: t.TempDir() + "/spool", Blobs: 2, Records: 10}
		if err := os.WriteFile(c.BlobFile(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		blobs := NewBlobs(c, 2)
		defer blobs.Close()
		list, err := blobs.Read(record & 7)
		for _, one := range list {
			if err == nil && len(one.Data)+len(one.Path) > len(data) {
				t.Errorf("%d bytes of %d", len(one.Data)+len(one.Path), len(data))
			}
		}
	})
}
