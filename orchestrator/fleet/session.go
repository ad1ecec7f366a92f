package fleet

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// session is a worker of a slot, from its start to its end, and the tasks that it has.
type session struct {
	fleet   *Fleet
	of      *slotRun
	slot    event.Slot
	member  *member
	worker  *process.Worker
	poolKey string
	hand    hand
	due     time.Time   // when the part of the current task ends
	timer   *time.Timer // ends it; nil until a batch of it is done
}

// askInterval is how often to ask for another task while the source has none: a stream
// may continue at any time.
const askInterval = 20 * time.Millisecond

// StallAfter is how long the kernel may work on its first batch before the user, who
// sees only zeros, gets a notice. The kernel may be loading or compiling; but a program
// that buffers its responses until its input ends would use up all of --open-timeout.
const StallAfter = 30 * time.Second

// assign sends the worker a task. A send error means that the worker has exited, which
// run notices.
func (s *session) assign(t queue.Task) *heldTask {
	key := s.slot.Key()
	h := &heldTask{Task: t, id: s.fleet.numbers.Add(1), exits: s.fleet.Registry.Exits(key)}
	s.worker.Send(wire.Message{Assign: &wire.Assign{
		ID: h.id, Chunk: s.fleet.Locate(t.Chunk), New: !t.Returned && !s.fleet.Resumed, Part: s.fleet.partPath(t),
		Final: len(s.fleet.queue.Untried(addDevice(t.Tried, key))) == 0 && !s.fleet.Registry.Shared(key), Blame: t.Blame,
	}})
	return h
}

// hasTasks reports whether the worker, if there is one, has tasks ahead of the current one.
func (s *session) hasTasks() bool { return s != nil && len(s.hand.ahead) > 0 }

// prefetch gives the worker another task if it may get one.
func (s *session) prefetch() {
	if !s.hand.mayGrow() || s.of.idles() {
		return
	}
	if next, ok := s.fleet.queue.TakeAhead(s.of.stays, s.slot.Key(), s.slot.Number, s.fleet.Lane.joins); ok {
		s.hand.ahead = append(s.hand.ahead, s.assign(next))
		s.member.holds(s.hand.load())
	}
}

// asking returns when to ask for another task again, nil if the worker needs none.
func (s *session) asking() <-chan time.Time {
	if !s.hand.mayGrow() || s.of.idles() {
		return nil
	}
	return time.After(askInterval)
}

// giveBackAhead returns the tasks that the worker has ahead of the current one.
func (s *session) giveBackAhead(lost bool) {
	for _, h := range s.hand.ahead {
		h.Alone = h.Alone || lost
		s.fleet.queue.GiveBack(h.Task)
	}
	s.hand.ahead = nil
}

// run follows the worker's current task to its end, and those that the worker has ahead of
// it.
func (s *session) run(ctx context.Context, current *heldTask) (retired bool, err error) {
	s.hand.current = current
	defer func() { s.hand.current = nil }()
	first := current.Chunk.First
	s.begin()
	s.repeatStop()
	defer s.stopTimer()
	defer s.watchFirst()()
	defer s.fleet.leader.begin(first)()
	s.prefetch()
	for {
		message, err := s.worker.Receive(ctx, s.asking())
		switch {
		case ctx.Err() != nil:
			s.fleet.queue.GiveBack(current.Task)
			return true, nil
		case err != nil:
			return s.of.handleLoss(ctx, &current.Task, s.worker.Lost(err), false)
		case message.Layout != nil:
			if e := s.fleet.leader.answer(ctx, s.worker, first, *message.Layout); e != nil {
				return s.of.handleLoss(ctx, &current.Task, e, true)
			}
		case message.Remainder != nil:
			if err := s.handBack(*message.Remainder); err != nil {
				return false, err
			}
		case message.Done != nil:
			if message.Done.Chunk == current.id {
				s.stopTimer() // or it would end the next part
			}
			retired, err := s.finishTask(ctx, *message.Done)
			if s.hand.current == nil || err != nil {
				return retired, err
			}
		case message.Failed != nil:
			return s.of.handleLoss(ctx, &current.Task, cmp.Or(s.checkSources(message.Failed.Sources, false), message.Failed.Fault), true)
		default:
			s.handle(ctx, message)
		}
	}
}

// begin records that the worker computes a part of its current task, which ends when a
// checkpoint is due.
func (s *session) begin() {
	t := s.hand.current.Task
	s.member.begin(t, s.hand.load())
	s.due = time.Now().Add(s.fleet.Checkpoint)
	if t.Probe == nil {
		s.fleet.Emit(event.ChunkStarted{Slot: s.slot.Number, Device: s.slot.Name, First: t.Chunk.First, Records: t.Chunk.Records})
	}
}

// startTimer ends the current part when that is due. The worker must have finished a batch of
// it: an earlier end would commit nothing, and so would the next.
func (s *session) startTimer() {
	if s.timer == nil {
		first := s.hand.current.Chunk.First
		s.timer = time.AfterFunc(time.Until(s.due), func() { s.worker.Send(wire.Message{Stop: &wire.Stop{Only: &first}}) })
	}
}

func (s *session) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// repeatStop repeats a stop or a pause that the worker may have received before its current
// task.
func (s *session) repeatStop() {
	switch {
	case !s.fleet.state.running():
		s.worker.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: s.fleet.DrainTimeout}})
	case s.of.idles():
		s.worker.EndChunk()
	}
}

// handle handles a message that neither ends a task nor needs an answer.
func (s *session) handle(ctx context.Context, message wire.Message) {
	switch {
	case message == (wire.Message{}): // the worker could take another task
		s.prefetch()
	case message.Start != nil:
		s.member.starts(*message.Start)
		s.fleet.Emit(event.WorkerPhase{Slot: s.slot.Number, Device: s.slot.Name, Start: *message.Start})
	case message.Progress != nil:
		s.progress(*message.Progress)
	case message.Search != nil:
		s.fleet.answered.Store(true)
		s.reportSearch(*message.Search)
		if first := message.Search.First; first != nil {
			s.fleet.ledger.hear(s.slot.Number, first)
			s.fleet.release(ctx, false)
		}
	case message.Suspect != nil:
		s.fleet.answered.Store(true)
		s.fleet.suspects.doubt(s, *message.Suspect)
	case message.Holding != nil: // it can try no record for now, or it can again
		s.fleet.answered.Store(true)
		text := "continuing"
		if why := message.Holding.Why; why != "" {
			text = "waiting: " + why
		}
		s.notice(text)
	case message.Warned != nil:
		s.fleet.notices.warn(s.slot, message.Warned.Warnings)
	case message.ReadComplete != nil:
		if h := s.hand.find(message.ReadComplete.Chunk); h != nil {
			h.read = true
		}
		s.prefetch()
	case message.ReturnPrefetched:
		s.giveBackAhead(false)
	case message.Spent != nil:
		s.fleet.Overspent(message.Spent.Blind)
	}
}

// notice tells the user something about the slot.
func (s *session) notice(text string) {
	s.fleet.Emit(event.Notice{Text: s.slot.Name + ": " + text})
}

// reportSearch reports, once in a job, that a batch killed the kernel, and nothing but the
// bisection happens for a while; or handles a batch that fails although none of its records
// does. The output may still be right, but computing each record alone takes long and hides a
// mistake in the kernel: without any results so far the job stops, otherwise it warns once.
func (s *session) reportSearch(search wire.Search) {
	if search.Lost != nil && s.fleet.notices.isNew("search") {
		s.notice("a whole batch failed: " + search.Lost.Message + "; bisecting it to isolate the bad records")
	}
	b := search.Blameless
	if b == nil {
		return
	}
	text := fmt.Sprintf("%d records failed twice as a batch with: %s; each of them succeeds alone", b.Records, b.Fault.Message)
	if b.Alone && !s.fleet.ledger.hasResults() {
		s.fleet.Stop(fault.FailsInBatches.New("the kernel fails on batches: %s: fix it, or compute records one by one with batches of 1", text).
			WithDetail(b.Fault.Detail).InStep(b.Fault.Step).Set("batch-size"))
		return
	}
	if s.fleet.notices.isNew("blameless") {
		if text += " or with fewer others, which takes longer"; b.Fault.Detail != "" {
			text += "\n" + b.Fault.Detail
		}
		s.notice("warning: " + text)
	}
}

// watchFirst notifies the user, once per job, if there is no response for a long time.
// The returned function ends the watch.
func (s *session) watchFirst() (stop func()) {
	timer := time.AfterFunc(s.fleet.StallAfter, func() {
		if s.fleet.answered.Load() || s.of.idles() || !s.fleet.notices.isNew("stall") {
			return
		}
		if s.member.fetches() {
			s.notice(fmt.Sprintf("the files of the first records have not arrived after %s", s.fleet.StallAfter))
			return
		}
		s.notice(fmt.Sprintf("no response to the first batch after %s; %s", s.fleet.StallAfter, s.worker.LastWords()))
	})
	return func() { timer.Stop() }
}

// checkSources checks the files that the worker reports. If they differ from the job's,
// the job stops and the worker's results are discarded; the returned fault is why the
// worker is lost.
func (s *session) checkSources(list []wire.Source, results bool) *fault.Error {
	s.worker.Sources = append(s.worker.Sources, list...)
	e := s.fleet.Sources(list, results)
	if e == nil || e.Kind != fault.Stopped {
		return e
	}
	s.fleet.Drain(e, s.fleet.DrainTimeout)
	return fault.Interrupted.New("%s", e.Message)
}
