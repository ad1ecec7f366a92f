package input

import (
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// A kept spool replaces a stream that cannot be read again: its files stay until the
// results of their records are durable.

// Keeper is a source with files that a resumed job needs.
type Keeper interface {
	Source
	// Sync makes durable what a resumed job must know about the records that were read. It
	// must be called before their results are called durable.
	Sync() error
	// Durable reports that the results of all records before next are durable.
	Durable(next int64)
}

// keptChunk is a chunk whose spool file is kept: the number of the record behind its last one.
type keptChunk struct {
	end  int64
	file string
}

// keep notes which records a spool file holds. The caller must hold s.mu.
func (s *sequence) keep(c chunk.Chunk) {
	if s.options.Keep && c.File != "" {
		s.kept = append(s.kept, keptChunk{c.First + c.Records, c.File})
	}
}

// Sync makes the log durable if a stream is among the sections: a stream that arrives again is
// refused unless it can be compared with the log.
func (s *sequence) Sync() error {
	if !s.once {
		return nil
	}
	return s.options.Log.sync()
}

// syncKept makes the end of a stream durable, after its files: the job can now resume without
// it. The caller must hold s.mu.
func (s *sequence) syncKept() error {
	if !s.options.Keep || !s.sections[s.head].Once {
		return nil
	}
	if err := files.SyncDir(s.options.Dir); err != nil {
		return spoolFault(err)
	}
	return s.options.Log.sync()
}

// Durable removes the files of which every record has a durable result.
func (s *sequence) Durable(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 && s.kept[0].end <= next {
		if file := s.kept[0].file; s.files[file].records > 0 { // otherwise it is the user's
			s.remove(file)
		}
		s.kept = s.kept[1:]
	}
}

// remove removes a spool file. The caller must hold s.mu.
func (s *sequence) remove(path string) {
	s.spooled -= s.files[path].bytes
	delete(s.files, path)
	_ = os.Remove(path)
	s.broadcast()
}

// sync makes the log durable.
func (l *ChunkLog) sync() error {
	if l == nil {
		return nil
	}
	if err := l.log.file.Sync(); err != nil {
		return fault.New(fault.Storage, "write %s: %w", l.log.what, err)
	}
	return nil
}
