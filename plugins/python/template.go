package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/shmem"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
)

// helloTimeout is how long a forked interpreter may take to begin. One that takes longer waits for
// a lock that no thread holds any more.
const helloTimeout = 10 * time.Second

// nvmlVariable makes torch.cuda.is_available(), which many files call at the module level, ask NVML
// instead of initializing CUDA, which would forbid forks.
const nvmlVariable = "PYTORCH_NVML_BASED_CUDA_CHECK=1"

// templateOf returns the request to fork an interpreter that has loaded files. env is added to the
// template's environment.
func templateOf(program, interpreter string, files, env []string) template.Request {
	return template.Request{
		Key:  strings.Join(append([]string{program, interpreter}, files...), "\x00"),
		Path: interpreter, Args: files, Env: append(unset(append(mallocVariables, nvmlVariable)), env...),
	}
}

// forkMessage is what a template is told.
type forkMessage struct {
	Program string            `json:"program"`
	Env     map[string]string `json:"env"`
	// Streams is how many descriptors of standard streams the child gets: its output, or all three.
	Streams int `json:"streams"`
	// Process is what else a child of a warm template takes over.
	Process *proc.Inherited `json:"process,omitempty"`
}

// offered returns the offer of templates, if an interpreter can be forked from one.
func offered(terminal bool) (template.Offer, bool) {
	offer, ok := template.Offered()
	return offer, ok && offer.Socket != "" && (!terminal || offer.Keep > 0)
}

// request returns the whole request for a child with this many standard streams, and the file that
// its template gets.
func (s starting) request(offer template.Offer, streams int) (r template.Request, runner *os.File, err error) {
	source, err := runnerSource(templateModules)
	if err != nil {
		return r, nil, err
	}
	if runner, err = shmem.Create("gpurun-runner", len(source)); err != nil {
		return r, nil, fmt.Errorf("%w: %w", template.ErrRefused, err)
	}
	if _, err := runner.WriteAt(source, 0); err != nil {
		runner.Close()
		return r, nil, fmt.Errorf("%w: %w", template.ErrRefused, err)
	}
	r = s.template
	r.Mark, r.Owner = offer.Mark, os.Getenv(workerVariable)
	message, how := forkMessage{Program: s.program, Env: s.inherited(offer.Mark), Streams: streams}, "template"
	if offer.Keep > 0 {
		how = "warm"
		message.Process = proc.InheritedByChildren()
		s.keepWarm(&r, &message, offer.Keep, source)
	}
	r.Args = append([]string{"-c", bootstrap, strconv.Itoa(len(source)), "4", how}, r.Args...)
	r.Message = message
	return r, runner, nil
}

// begin makes the template of the interpreter start, so that a later fork need not wait for it.
func (s starting) begin(offer template.Offer) {
	if r, runner, err := s.request(offer, 1); err == nil { // a later request reports why
		defer runner.Close()
		_ = template.Begin(offer.Socket, r, runner)
	}
}

// fork forks the interpreter from a template. It returns ErrRefused if there is none.
func (s starting) fork(ctx context.Context, c *child, channel *os.File, command proc.Command) (*proc.Process, error) {
	offer, ok := offered(c.terminal)
	if !ok {
		return nil, template.ErrRefused
	}
	streams := []*os.File{command.Stdout}
	if c.terminal {
		streams = []*os.File{command.Stdin, command.Stdout, command.Stderr}
	}
	r, runner, err := s.request(offer, len(streams))
	if err != nil {
		return nil, err
	}
	defer runner.Close()
	files := slices.Concat([]*os.File{runner, channel}, s.memory, streams)
	began := time.Now()
	forked, err := template.Fork(ctx, offer.Socket, r, files...)
	switch {
	case errors.Is(err, template.ErrRefused):
		c.printer.write(fmt.Appendf(nil, "gpurun: Python starts without a template: %s", strings.TrimPrefix(err.Error(), template.ErrRefused.Error()+": ")))
		return nil, err
	case err != nil:
		return nil, err
	case forked.Itself:
		c.printer.write(fmt.Appendf(nil, "gpurun: further workers start without a template: %s", forked.Load.Unsafe))
	}
	waited := min(time.Since(began), forked.Load.Took())
	if waited > forked.Load.Took()/2 { // otherwise others have waited for the template
		c.noteImports(&forked.Load)
	}
	if !forked.Itself {
		c.imports.Shared = waited
	}
	c.forked = forked
	return forked.Process, nil
}

// noteImports adds what was imported in the template or in the process; nil if nothing was.
func (c *child) noteImports(l *template.Load) {
	if l == nil {
		return
	}
	more := plugins.Imports{Took: l.Took()}
	for _, one := range l.Slowest {
		more.Slowest = append(more.Slowest, plugins.Import{Name: one.Name, Took: time.Duration(one.Seconds * float64(time.Second))})
	}
	c.imports = c.imports.Then(more)
}

// inherited are the variables of this process, or of the interpreter, in which the template's
// environment may differ.
func (s starting) inherited(mark string) map[string]string {
	values := map[string]string{template.MarkVariable: mark}
	for _, entry := range s.env {
		name, value, _ := strings.Cut(entry, "=")
		if name == workerVariable || slices.Contains(threadVariables, name) {
			values[name] = value
		}
	}
	return values
}
