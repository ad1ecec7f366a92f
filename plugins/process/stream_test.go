package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// each is a concurrent kernel made of a function.
type each struct {
	plugins.Base
	info   plugins.Info
	answer func(ctx context.Context, record plugins.Record) plugins.Answer
}

func (k each) Describe(context.Context, plugins.Config) (plugins.Info, error) { return k.info, nil }
func (k each) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	return k.answer(ctx, record)
}
func (k each) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, k.info.Concurrency, batch, results)
}

func textRecord(text string) plugins.Record { return plugins.NewBatch([][]byte{[]byte(text)}).At(0) }

// Answers come in any order, with everything that an answer can hold.
func TestStream(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		first := make(chan struct{})
		proxy := connect(t, each{info: plugins.Info{Concurrency: 8}, answer: func(_ context.Context, record plugins.Record) plugins.Answer {
			switch text := string(record.Bytes()); text {
			case `"first"`:
				<-first
				return plugins.Answer{Verdict: plugins.Unchanged}
			case `"retry"`:
				return plugins.RetryAfter(1500*time.Millisecond, "busy")
			case `"reject"`:
				return plugins.Answer{Verdict: plugins.Failed, Message: "no", Detail: "why"}
			case `"error"`:
				return plugins.FailedBy(errors.New("CUDA out of memory. Tried to allocate 2 GiB"))
			case `"nothing"`:
				return plugins.Answer{}
			case `"huge"`:
				return plugins.Replaced([]byte(strings.Repeat("x", mostAnswer+1)))
			case `{"a":1}`:
				line, err := record.With(plugins.NewMember{Name: "b", Value: []byte("2")}, plugins.NewMember{Name: "a", Value: []byte("[]")})
				if err != nil {
					return plugins.FailedBy(err)
				}
				return plugins.Answer{Verdict: plugins.Lines, Lines: [][]byte{line, []byte(text)}, Nulls: 3}
			}
			return plugins.Replaced()
		}})
		waiting := make(chan plugins.Answer, 1)
		go func() { waiting <- proxy.Answer(t.Context(), textRecord(`"first"`)) }()
		for text, want := range map[string]string{
			`"retry"`:   `{retry [] busy  <nil> 1.5s 0}`,
			`"reject"`:  `{fail [] no why <nil> 0s 0}`,
			`"drop"`:    `{drop []   <nil> 0s 0}`,
			`{"a":1}`:   `{lines [{"a":[],"b":2} {"a":1}]   <nil> 0s 3}`,
			`"nothing"`: "{fail []   kernel answered a record with no verdict 0s 0}",
			`"huge"`:    fmt.Sprintf("{fail []   kernel returned %d bytes for one record; the limit is %d 0s 0}", mostAnswer+1, mostAnswer),
		} {
			a := proxy.Answer(t.Context(), textRecord(text))
			lines := make([]string, len(a.Lines))
			for i, line := range a.Lines {
				lines[i] = string(line)
			}
			if got := fmt.Sprint("{", a.Verdict, " ", lines, " ", a.Message, " ", a.Detail, " ", a.Err, " ", a.After, " ", a.Nulls, "}"); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
		if a := proxy.Answer(t.Context(), textRecord(`"error"`)); fault.KindOf(a.Err) != fault.OOM {
			t.Errorf("%v is of kind %s", a.Err, fault.KindOf(a.Err))
		}
		close(first)
		if a := <-waiting; a.Verdict != plugins.Unchanged {
			t.Errorf("%+v", a)
		}
	})
}

// A record is given up when its context ends, and the others are not.
func TestStreamGiveUp(t *testing.T) {
	release := make(chan struct{})
	proxy := connected(t, each{info: plugins.Info{Concurrency: 8}, answer: func(ctx context.Context, record plugins.Record) plugins.Answer {
		switch string(record.Bytes()) {
		case `"obeys"`:
			<-ctx.Done()
			return plugins.FailedBy(ctx.Err())
		case `"ignores"`:
			<-release
		}
		return plugins.Answer{Verdict: plugins.Unchanged}
	}}, nil, nil)
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := proxy.Answer(ctx, textRecord(`"obeys"`)); a.Verdict != plugins.Failed || errors.Is(a.Err, ErrUnresponsive) {
		t.Errorf("%+v", a)
	}
	if a := proxy.Answer(ctx, textRecord(`"ignores"`)); !errors.Is(a.Err, ErrUnresponsive) {
		t.Errorf("%+v", a)
	}
	if a := proxy.Answer(t.Context(), textRecord(`"other"`)); a.Verdict != plugins.Unchanged {
		t.Errorf("%+v", a)
	}
}

// A record that is asked with a limit is given up after it, and no other.
func TestAskLimit(t *testing.T) {
	proxy := connected(t, each{info: plugins.Info{Concurrency: 8}, answer: func(ctx context.Context, record plugins.Record) plugins.Answer {
		if string(record.Bytes()) == `"slow"` {
			<-ctx.Done()
			return plugins.RetryAfter(0, "given up")
		}
		return plugins.Answer{Verdict: plugins.Unchanged}
	}}, nil, nil)
	type outcome struct {
		verdict plugins.Verdict
		expired bool
	}
	ask := func(text string, limit time.Duration) <-chan outcome {
		answered := make(chan outcome, 2) // a second answer would be seen
		proxy.Ask(textRecord(text), limit, func(a plugins.Answer, expired bool) { answered <- outcome{a.Verdict, expired} })
		return answered
	}
	long, short := ask(`"slow"`, time.Hour), ask(`"slow"`, 20*time.Millisecond)
	if got := <-short; got != (outcome{plugins.Retry, true}) {
		t.Errorf("%+v", got)
	}
	if got := <-ask(`"fast"`, time.Hour); got != (outcome{plugins.Unchanged, false}) {
		t.Errorf("%+v", got)
	}
	proxy.failAll(fault.New(fault.Crash, "gone"))
	if got := <-long; got != (outcome{plugins.Failed, false}) {
		t.Errorf("%+v", got)
	}
	if got := <-ask(`"fast"`, time.Hour); got != (outcome{plugins.Failed, false}) {
		t.Errorf("%+v", got)
	}
}

// Many goroutines, records in and outside of the arena.
func TestStreamManyRecords(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		proxy := connect(t, each{info: plugins.Info{Concurrency: 64, Inputs: []string{"a"}}, answer: func(_ context.Context, record plugins.Record) plugins.Answer {
			value, _ := record.Member("a")
			return plugins.Replaced([]byte(string(value) + string(record.Bytes())))
		}})
		var group sync.WaitGroup
		for k := range 64 {
			records := make([][]byte, 50)
			for i := range records {
				records[i] = fmt.Appendf(nil, `{"a":%d}`, 1000*k+i)
			}
			batch := plugins.NewBatch(records)
			if proxy.link.sharedArena() != nil && k%2 == 0 {
				batch, _ = place(t, proxy.link.sharedArena(), 3, records...)
			}
			group.Go(func() {
				for i := range records {
					a := proxy.Answer(t.Context(), batch.At(i))
					if want := fmt.Sprintf(`%d{"a":%d}`, 1000*k+i, 1000*k+i); len(a.Lines) != 1 || string(a.Lines[0]) != want {
						t.Errorf("%s: %+v", want, a)
					}
				}
			})
		}
		group.Wait()
	})
}

// What a kernel in another language may do wrong on the stream ends its process.
func TestStreamBreaches(t *testing.T) {
	for name, test := range map[string]struct {
		answers []*kernelpb.Answer
		says    string
	}{
		"twice":   {[]*kernelpb.Answer{{Number: 1, Verdict: 1}, {Number: 1, Verdict: 1}}, "answered a record twice"},
		"unknown": {[]*kernelpb.Answer{{Number: 7, Verdict: 1}}, "answered a record that was not sent"},
		"zero":    {[]*kernelpb.Answer{{}}, "answered a record that was not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(nil)
			c.records.unheard = map[uint64]*hearing{1: {answered: func(plugins.Answer, bool) {}}}
			c.records.last = 1
			err := c.records.receive(&kernelpb.StreamReply{Answers: test.answers})
			if fault.KindOf(err) != fault.Crash || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
	c := newClient(nil)
	for name, message := range map[string]*kernelpb.Answer{
		"unknown verdict": {Number: 1, Verdict: 300}, "columns": {Number: 1, Verdict: 3}, "none": {Number: 1},
	} {
		if a := c.link.unpackAnswer(message); a.Verdict != plugins.Failed || fault.KindOf(a.Err) != fault.Batch {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A description that contradicts itself is refused by name.
func TestConcurrencyRefused(t *testing.T) {
	answer := func(context.Context, plugins.Record) plugins.Answer {
		return plugins.Answer{Verdict: plugins.Unchanged}
	}
	for says, k := range map[string]plugins.Kernel{
		"Info.InFlight":      each{info: plugins.Info{Concurrency: 2, InFlight: 2}, answer: answer},
		"Info.GroupBy":       each{info: plugins.Info{Concurrency: 2, GroupBy: "a"}, answer: answer},
		"between 1 and":      each{info: plugins.Info{Concurrency: plugins.MaxConcurrency + 1}, answer: answer},
		"plugins.Concurrent": batchOnly{},
	} {
		proxy, end := loopback(k, nil, nil)
		_, err := proxy.Describe(t.Context(), nil)
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		end()
	}
}

// batchOnly declares what it does not implement.
type batchOnly struct{ plugins.Base }

func (batchOnly) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Concurrency: 2}, nil
}
func (batchOnly) Process(context.Context, plugins.Batch, *plugins.Results) error { return nil }

// A kernel of its own language that has no Stream, or ends it, is reported.
func TestStreamEnds(t *testing.T) {
	proxy := connected(t, batchKernel{}, nil, nil)
	if a := proxy.Answer(t.Context(), textRecord("1")); fault.KindOf(a.Err) != fault.Crash {
		t.Errorf("%+v", a)
	}
	if !proxy.Broken() {
		t.Error("it is still used")
	}
}

type batchKernel struct{ plugins.Base }

func (batchKernel) Process(context.Context, plugins.Batch, *plugins.Results) error { return nil }

// mostAnswer is the limit of one answer in bytes.
const mostAnswer = 64 << 20
