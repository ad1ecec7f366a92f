package plugins

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// giveUpGrace is how long a kernel may take to answer a record that it was asked to give
// up.
const giveUpGrace = 2 * time.Second

// ErrUnresponsive is the error of an answer for a record that the kernel did not give up
// when asked to. Its process no longer works as it should and must be ended.
var ErrUnresponsive error = fault.KernelTimeout.New("the kernel did not give up a record that took too long")

// asking is the stream of records to a concurrent kernel.
type asking struct {
	link      *link
	mu        sync.Mutex
	stream    kernelpb.Kernel_StreamClient // nil before the first record
	cancel    context.CancelFunc
	wake      chan struct{}
	ended     chan struct{} // closed when the last reply has been received
	last      uint64        // number of the last record
	unsent    []asked
	giveUp    []uint64
	unheard   map[uint64]*hearing
	abandoned map[uint64]bool // that the kernel did not give up
	closed    bool
	failure   error // why no further record can be sent

	// due is when the first of the unheard times out, and watch the timer for that. One timer
	// serves all records, because hardly any of them times out.
	due   time.Time
	watch *time.Timer
}

// asked is a record to send.
type asked struct {
	number uint64
	record Record
}

// hearing waits for the answer to a record.
type hearing struct {
	answered func(a Answer, expired bool)
	until    time.Time // when to give the record up, or the answer to that; zero for never
	expired  bool      // it was given up
}

// ask queues a record. The answer may arrive at once.
func (a *asking) ask(record Record, to *hearing) (uint64, error) {
	a.link.mu.Lock()
	broken := a.link.broken
	a.link.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case broken != nil:
		return 0, broken
	case a.failure != nil: // meanwhile
		return 0, a.failure
	case a.closed:
		return 0, errClosed
	}
	if a.stream == nil {
		if err := a.open(); err != nil {
			return 0, err
		}
	}
	a.last++
	a.unheard[a.last] = to
	a.watchUntil(to.until)
	a.unsent = append(a.unsent, asked{a.last, record})
	a.signal()
	return a.last, nil
}

// open starts the stream. The caller must hold the lock.
func (a *asking) open() error {
	if !a.link.arena.hold() {
		return errClosed
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := a.link.rpc.Stream(ctx)
	if err != nil {
		cancel()
		a.link.arena.drop()
		return a.link.explain(err)
	}
	a.stream, a.cancel, a.wake, a.ended = stream, cancel, make(chan struct{}, 1), make(chan struct{})
	a.unheard, a.abandoned = make(map[uint64]*hearing), make(map[uint64]bool)
	go a.send(stream)
	go a.receive(stream)
	return nil
}

func (a *asking) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// revoke asks the kernel to give a record up.
func (a *asking) revoke(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if to := a.unheard[number]; to != nil {
		a.expire(number, to)
		a.watchUntil(to.until)
	}
}

// expire asks the kernel to give a record up, and limits how long that may take. The caller
// must hold the lock.
func (a *asking) expire(number uint64, to *hearing) {
	to.expired, to.until = true, time.Now().Add(giveUpGrace)
	a.giveUp = append(a.giveUp, number)
	a.signal()
}

// watchUntil makes the timer call look at that time or earlier. The caller must hold the lock.
func (a *asking) watchUntil(until time.Time) {
	if until.IsZero() || !a.due.IsZero() && !until.Before(a.due) {
		return
	}
	a.due = until
	if a.watch == nil {
		a.watch = time.AfterFunc(time.Until(until), a.look)
		return
	}
	a.watch.Reset(time.Until(until))
}

// look gives up the records that have timed out, and stops waiting for those that the kernel
// does not give up.
func (a *asking) look() {
	var stuck []*hearing
	a.mu.Lock()
	a.due = time.Time{}
	now, next := time.Now(), time.Time{}
	for number, to := range a.unheard {
		switch {
		case to.until.IsZero():
			continue
		case to.until.After(now):
		case !to.expired:
			a.expire(number, to)
		default:
			delete(a.unheard, number)
			a.abandoned[number] = true
			stuck = append(stuck, to)
			continue
		}
		if next.IsZero() || to.until.Before(next) {
			next = to.until
		}
	}
	a.watchUntil(next)
	a.mu.Unlock()
	for _, to := range stuck {
		to.answered(FailedBy(ErrUnresponsive), true)
	}
}

// close ends the stream and waits for the answers on their way.
func (a *asking) close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	ended := a.ended
	if a.stream != nil {
		a.signal()
	}
	a.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail answers all records with err.
func (a *asking) fail(err error) {
	a.mu.Lock()
	unheard := a.unheard
	a.failure, a.unheard = err, make(map[uint64]*hearing)
	if a.watch != nil {
		a.watch.Stop()
	}
	a.mu.Unlock()
	for _, to := range unheard {
		to.answered(FailedBy(err), to.expired)
	}
}

// send sends records and cancellations until the stream ends.
func (a *asking) send(stream kernelpb.Kernel_StreamClient) {
	for {
		a.mu.Lock()
		records, giveUp, closed := a.unsent, a.giveUp, a.closed
		a.unsent, a.giveUp = nil, nil
		a.mu.Unlock()
		for len(records) > 0 {
			request, n := a.pack(records)
			if stream.Send(request) != nil {
				return // receive finds the cause
			}
			records = records[n:]
		}
		if len(giveUp) > 0 && stream.Send(&kernelpb.StreamRequest{Cancel: giveUp}) != nil {
			return
		}
		if closed {
			_ = stream.CloseSend()
			return
		}
		select {
		case <-a.wake:
		case <-stream.Context().Done():
			return
		}
	}
}

const (
	// askedTogether is the most records of one message.
	askedTogether = 256
	// askedInline is the size from which no further record goes into a message.
	askedInline = 4 << 20
)

// pack puts the first n records into one message: those that are in the arena in
// order, or else the first alone or with others inline.
func (a *asking) pack(records []asked) (request *kernelpb.StreamRequest, n int) {
	records = records[:min(len(records), askedTogether)]
	shared := a.link.sharedArena()
	end, inPlace := uint64(0), false
	size := 0
	for n < len(records) {
		data := records[n].record.Bytes()
		at, in := shared.offsetOf(data)
		if n > 0 && (in != inPlace || in && (at < end || at-end > math.MaxUint32) || !in && size > askedInline) {
			break
		}
		inPlace, end, size = in, at+uint64(len(data)), size+len(data)
		n++
		for _, file := range records[n-1].record.files() {
			if _, in := shared.offsetOf(file); !in {
				size += len(file)
			}
		}
		if size > askedInline {
			break
		}
	}
	items := make([][]byte, n)
	for i := range items {
		items[i] = records[i].record.Bytes()
	}
	request = &kernelpb.StreamRequest{First: records[0].number, Spans: a.link.spansAsked(records[:n]), Fetched: fetchedAsked(shared, records[:n])}
	if inPlace {
		request.Records = packInPlace(&carrier{arena: shared}, items)
	} else {
		request.Records = packBlock(&carrier{}, items)
	}
	return request, n
}

// fetchedAsked describes the files of the records, which all have the same names for them.
func fetchedAsked(shared *arena, records []asked) []*kernelpb.Fetched {
	names := records[0].record.FetchedNames()
	list := make([]*kernelpb.Fetched, len(names))
	files := make([][]byte, len(records))
	for k, name := range names {
		for i := range files {
			files[i] = records[i].record.files()[k]
		}
		list[k] = &kernelpb.Fetched{Name: valid(name)}
		if !filesInPlace(&carrier{arena: shared}, list[k], files) {
			list[k].Files = packBlock(&carrier{}, files)
		}
	}
	return list
}

// spansAsked returns the spans of the records, or nil if one has none for the members that
// the kernel reads.
func (l *link) spansAsked(records []asked) (spans []uint32) {
	l.mu.Lock()
	inputs := l.inputs
	l.mu.Unlock()
	each := 2 * len(inputs)
	for _, one := range records {
		b, i := one.record.batch, one.record.i
		if each == 0 || len(b.spans) == 0 || !slices.Equal(b.inputs, inputs) {
			return nil
		}
		spans = append(spans, b.spans[i*each:(i+1)*each]...)
	}
	return spans
}

// receive passes answers on until the stream ends.
func (a *asking) receive(stream kernelpb.Kernel_StreamClient) {
	defer a.link.arena.drop()
	defer close(a.ended)
	defer a.cancel()
	for {
		reply, err := stream.Recv()
		if err == nil {
			err = a.takeAll(reply)
		} else {
			err = a.streamEnd(err)
		}
		if err != nil {
			a.link.fail(err)
			return
		}
	}
}

// streamEnd is streamError for the stream of records.
func (a *asking) streamEnd(err error) error {
	a.mu.Lock()
	quiet := a.closed && len(a.unheard) == 0
	a.mu.Unlock()
	if quiet {
		return errClosed
	}
	return a.link.explain(err)
}

// takeAll passes the answers of a reply on. An error means that the process must not
// be used any more.
func (a *asking) takeAll(reply *kernelpb.StreamReply) error {
	a.link.note(reply.GetSources(), reply.GetWarnings(), reply.GetMemory())
	var unfit error // the other answers of the reply still count
	for _, message := range reply.GetAnswers() {
		answer := a.link.unpackAnswer(message)
		if unfit == nil && makesUnfit(answer.Err) {
			unfit = answer.Err
			a.link.markUnfit(unfit)
		}
		if err := a.deliver(message.GetNumber(), answer); err != nil {
			return err
		}
	}
	return unfit
}

// deliver passes an answer to the caller that waits for it.
func (a *asking) deliver(number uint64, answer Answer) error {
	a.mu.Lock()
	to, abandoned, last := a.unheard[number], a.abandoned[number], a.last
	delete(a.unheard, number)
	delete(a.abandoned, number)
	a.mu.Unlock()
	switch {
	case to != nil:
		to.answered(answer, to.expired)
		return nil
	case abandoned:
		return nil
	case number > 0 && number <= last:
		return fault.KernelContract.Of(fault.Crash, "kernel answered a record twice")
	}
	return fault.KernelContract.Of(fault.Crash, "kernel answered a record that was not sent")
}
