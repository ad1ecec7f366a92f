package input

import (
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// spoolFiles are the files of a spool, until their records are no longer needed.
type spoolFiles struct {
	keep  bool // until the results of their records are durable
	files map[string]spoolFile
	bytes int64       // in all of them
	kept  []keptChunk // in order
}

// spoolFile is a file of the spool: how many of its records are still needed.
type spoolFile struct {
	records, bytes int64
	blobs          string // the file of the values beside its lines, "" if there are none
}

// keptChunk is a chunk whose spool file is kept: the number of the record behind its last one.
// A kept spool replaces a stream that cannot be read again.
type keptChunk struct {
	end  int64
	file string
}

// add adds the file of a chunk, and the file of its blobs, which have so many bytes.
func (s *spoolFiles) add(c chunk.Chunk, blobs int64) {
	file := spoolFile{records: c.Records, bytes: c.Length + blobs}
	if c.Blobs > 0 {
		file.blobs = c.BlobFile()
	}
	s.files[c.File] = file
	s.bytes += file.bytes
}

// hold keeps the file of a chunk, if files are kept. Chunks are held in order.
func (s *spoolFiles) hold(c chunk.Chunk) {
	if s.keep && c.File != "" {
		s.kept = append(s.kept, keptChunk{c.First + c.Records, c.File})
	}
}

// release counts records: a chunk may be released in pieces, and its file is removed with the
// last one.
func (s *spoolFiles) release(c chunk.Chunk) {
	file, ok := s.files[c.File]
	if !ok || s.keep {
		return
	}
	if file.records -= c.Records; file.records > 0 {
		s.files[c.File] = file
		return
	}
	s.remove(c.File)
}

// durable removes the files that were kept for the records before next.
func (s *spoolFiles) durable(next int64) {
	for len(s.kept) > 0 && s.kept[0].end <= next {
		if file := s.kept[0].file; s.files[file].records > 0 { // otherwise it is the user's
			s.remove(file)
		}
		s.kept = s.kept[1:]
	}
}

func (s *spoolFiles) remove(path string) {
	file := s.files[path]
	s.bytes -= file.bytes
	delete(s.files, path)
	_ = os.Remove(path)
	if file.blobs != "" {
		_ = os.Remove(file.blobs)
	}
}

// spoolFault is the fault of a spool file that cannot be written.
func spoolFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.NoCopy.New("spool input: %w", err)
}
