package process

import (
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// giveUpGrace is how long a kernel may take to answer a record that it was asked to give
// up.
const giveUpGrace = 2 * time.Second

// ErrUnresponsive is the error of an answer for a record that the kernel did not give up
// when asked to. Its process no longer works as it should and must be ended.
var ErrUnresponsive error = fault.KernelTimeout.New("the kernel did not give up a record that took too long")

// asking is the stream of records to a concurrent kernel.
type asking struct {
	*link
	flow      *flow  // nil before the first record
	last      uint64 // number of the last record
	unsent    []asked
	giveUp    []uint64
	unheard   map[uint64]*hearing
	abandoned map[uint64]bool // that the kernel did not give up
}

// asked is a record to send.
type asked struct {
	number uint64
	record plugins.Record
}

// hearing waits for the answer to a record.
type hearing struct {
	answered func(a plugins.Answer, expired bool)
	timer    *time.Timer // calls expire; nil for a record without a time limit
	expired  bool        // it was given up
}

// ask queues a record. The answer may arrive at once. After limit, if there is one, the record
// is given up.
func (a *asking) ask(record plugins.Record, limit time.Duration, answered func(a plugins.Answer, expired bool)) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken == nil && a.flow == nil {
		a.unheard, a.abandoned = make(map[uint64]*hearing), make(map[uint64]bool)
		a.flow, a.broken = startFlow(a.link, a.rpc.Stream, a.next, a.receive, a.isIdle)
	}
	if a.broken != nil {
		return 0, a.broken
	}
	a.last++
	number, to := a.last, &hearing{answered: answered}
	if limit > 0 {
		to.timer = time.AfterFunc(limit, func() { a.expire(number) })
	}
	a.unheard[number] = to
	a.unsent = append(a.unsent, asked{number, record})
	a.flow.signal()
	return number, nil
}

// expire asks the kernel to give a record up, and limits how long that may take. After that
// time, the record is answered.
func (a *asking) expire(number uint64) {
	a.mu.Lock()
	to := a.unheard[number]
	stuck := to != nil && to.expired
	switch {
	case stuck:
		delete(a.unheard, number)
		a.abandoned[number] = true
	case to != nil:
		to.expired, to.timer = true, time.AfterFunc(giveUpGrace, func() { a.expire(number) })
		a.giveUp = append(a.giveUp, number)
		a.flow.signal()
	}
	a.mu.Unlock()
	if stuck {
		to.answered(plugins.FailedBy(ErrUnresponsive), true)
	}
}

func (a *asking) isIdle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unheard) == 0
}

// fail answers all records with err.
func (a *asking) fail(err error) {
	a.mu.Lock()
	unheard := a.unheard
	a.unheard = make(map[uint64]*hearing)
	a.mu.Unlock()
	for _, to := range unheard {
		to.answer(plugins.FailedBy(err))
	}
}

func (h *hearing) answer(a plugins.Answer) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.answered(a, h.expired)
}

// next returns the records and cancellations to send.
func (a *asking) next() (requests []*kernelpb.StreamRequest) {
	a.mu.Lock()
	records, giveUp := a.unsent, a.giveUp
	a.unsent, a.giveUp = nil, nil
	a.mu.Unlock()
	for len(records) > 0 {
		request, n := a.pack(records)
		requests, records = append(requests, request), records[n:]
	}
	if len(giveUp) > 0 {
		requests = append(requests, &kernelpb.StreamRequest{Cancel: giveUp})
	}
	return requests
}

const (
	// askedTogether is the most records of one message.
	askedTogether = 256
	// askedInline is the size from which no further record goes into a message.
	askedInline = 4 << 20
)

// pack puts the first n records into one message: those that are in the arena, or else the
// first alone or with others inline.
func (a *asking) pack(records []asked) (request *kernelpb.StreamRequest, n int) {
	records = records[:min(len(records), askedTogether)]
	c := &protocol.Carrier{Arena: a.sharedArena(), Least: math.MaxInt} // nothing would free a copy in the arena
	var lines [][]byte
	size, inPlace := 0, false // bytes that are not in the arena, and whether the records are
	for ; n < len(records); n++ {
		data := records[n].record.Bytes()
		_, in := c.Arena.OffsetOf(data)
		if n > 0 && (in != inPlace || size > askedInline) {
			break
		}
		inPlace, lines = in, append(lines, data)
		if !in {
			size += len(data)
		}
		for _, name := range records[n].record.FetchedNames() {
			file, _ := records[n].record.Fetched(name)
			if _, in := c.Arena.OffsetOf(file); !in {
				size += len(file)
			}
		}
	}
	request = &kernelpb.StreamRequest{First: records[0].number}
	request.Records, request.Spans, request.Fetched = a.link.pack(c, lines, func(i int) plugins.Record { return records[i].record })
	return request, n
}

// receive passes the answers of a reply on. An error means that the process must not
// be used any more.
func (a *asking) receive(reply *kernelpb.StreamReply) error {
	a.addReport(reply.GetReport())
	var unfit error // the other answers of the reply still count
	for _, message := range reply.GetAnswers() {
		answer := a.unpackAnswer(message)
		if unfit == nil && makesUnfit(answer.Err) {
			unfit = answer.Err
			a.markUnfit(unfit)
		}
		if err := a.deliver(message.GetNumber(), answer); err != nil {
			return err
		}
	}
	return unfit
}

// deliver passes an answer to the caller that waits for it.
func (a *asking) deliver(number uint64, answer plugins.Answer) error {
	a.mu.Lock()
	to, abandoned, last := a.unheard[number], a.abandoned[number], a.last
	delete(a.unheard, number)
	delete(a.abandoned, number)
	a.mu.Unlock()
	switch {
	case to != nil:
		to.answer(answer)
		return nil
	case abandoned:
		return nil
	case number > 0 && number <= last:
		return fault.KernelContract.Of(fault.Crash, "kernel answered a record twice")
	}
	return fault.KernelContract.Of(fault.Crash, "kernel answered a record that was not sent")
}
