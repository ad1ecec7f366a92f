package orchestrator

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Record is one JSON value. It may contain line breaks between its parts.
type Record []byte

// Result is what became of one record.
type Result struct {
	// Index is the number of the record in the input, counting from 0.
	Index int64
	// Records are what the kernel made of it: usually one, none if it was dropped or
	// failed, several if the kernel returned several.
	Records []Record
	// Failure is why the record failed, nil if it did not. Failed is the record that failed.
	Failure *Fault
	Failed  Record
}

// Stream runs a job whose records come from a Go program and whose results go back to it.
// It yields one Result for each record, in the order of the records, and the error that
// ended the job, if any, as its last pair. Each iteration over the returned sequence is a
// job of its own.
//
// The paths and formats in config.Input and config.Output must be empty: there are no
// files. What waits for a worker or for the program is in the job folder, in
// config.Resume.WorkDir or the user's state folder, which is removed at the end. Memory
// does not grow with the number of records.
//
// Stream ranges over records in a goroutine of its own, ahead of the workers by some
// chunks; a record is copied, so its memory can be reused. If the workers or the program
// are slower than records, it waits for them. An error in records ends the input: Stream
// yields the results of the records before it, then that error. A record that is not JSON
// fails like one that the kernel rejects. A partial batch waits at most config.Input.Flush
// for more records.
//
// Breaking out of the loop stops the job and its processes before the loop statement ends.
// Canceling ctx stops it as in [Run]: results that workers are about to finish are still
// yielded. If records is blocked when the job ends, Stream does not wait for it.
func Stream(ctx context.Context, config Config, records iter.Seq2[Record, error]) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		if err := config.checkStream(); err != nil {
			yield(Result{}, err)
			return
		}
		s := startStream(ctx, config, records)
		defer s.stop()
		for {
			result, err := s.frames.next()
			if err != nil {
				if err := s.end(err); err != nil {
					yield(Result{}, err)
				}
				return
			}
			if !yield(result, nil) {
				return
			}
		}
	}
}

// checkStream refuses what only files have.
func (c Config) checkStream() error {
	for _, one := range []struct{ what, value string }{
		{"input", c.Input.Path + strings.Join(c.Input.Paths, " ")}, {"input format", c.Input.Format}, {"output", c.Output.Path}, {"errors file", c.Output.Errors}, {"output format", c.Output.Format}, {"format", c.Format},
		{"columns of an output", strings.Join(c.Output.Columns, ",")},
	} {
		if one.value != "" {
			return fault.NeedsFile.New("a stream of records has no %s: %s", one.what, one.value)
		}
	}
	if len(c.Output.Arrays) > 0 {
		return fault.NeedsFile.New("a stream of records has no arrays: %s", c.Output.Arrays[0].Path)
	}
	return nil
}

// stream is a job that Stream runs.
type stream struct {
	feed    *feed
	results *io.PipeReader
	frames  *frames
	quit    func()        // aborts the job
	ended   chan struct{} // closed when Run has returned
	err     error         // of Run; valid once ended is closed
	folder  string        // the job's; valid once ended is closed
}

// startStream starts the job and the goroutine that reads the records.
func startStream(ctx context.Context, config Config, records iter.Seq2[Record, error]) *stream {
	results, writer := io.Pipe()
	abort := make(chan struct{})
	s := &stream{
		feed: &feed{lines: make(chan []byte, feedRecords), closed: make(chan struct{})}, results: results,
		frames: &frames{in: bufio.NewReaderSize(results, 256<<10), index: config.Input.Offset},
		quit:   sync.OnceFunc(func() { close(abort) }), ended: make(chan struct{}),
	}
	report := config.Display.OnEvent
	config.Display.OnEvent = func(event Event) {
		if planned, ok := event.(Planned); ok {
			s.folder = planned.Folder
		}
		if report != nil {
			report(event)
		}
	}
	config.Input.Path, config.Input.Stdin = "-", s.feed
	config.Output.Path, config.Output.Stdout = "-", writer
	asked := config.Abort
	config.Abort = abort
	go s.feed.fill(records)
	go func() {
		defer close(s.ended)
		var job *spec.Spec
		if job, s.err = spec.Streaming(config.settings()); s.err == nil {
			lines := format.Lines{ReadCloser: io.NopCloser(s.feed), First: 1}
			_, s.err = run(ctx, order{Spec: job, Program: config.Program, stdin: &lines})
		}
		_ = writer.Close() // never fails
	}()
	go func() {
		select {
		case <-asked:
			s.quit()
		case <-s.ended:
		}
	}()
	return s
}

// end waits for the job and returns why it ended: nil if all records are done. cause is why
// there is no further result.
func (s *stream) end(cause error) error {
	if !errors.Is(cause, io.EOF) {
		s.quit()
	}
	<-s.ended
	producer := s.feed.failure()
	if s.err != nil && producer != nil {
		return errors.Join(s.err, producer)
	}
	if err := cmp.Or(s.err, producer); err != nil || errors.Is(cause, io.EOF) {
		return err
	}
	return fault.Bug.New("bug: read results: %w", cause)
}

// stop ends the job, unless it has ended, and removes its files.
func (s *stream) stop() {
	close(s.feed.closed)
	_ = s.results.CloseWithError(errStreamStopped) // never fails
	s.quit()
	<-s.ended
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}

var errStreamStopped = errors.New("the program has stopped reading")
