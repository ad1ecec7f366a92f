package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// spend counts what a job uses, together with its other workers, and knows when that is
// enough.
type spend struct {
	limits   wire.Spend
	figures  *figures.File
	answers  int64     // so far, while none reports tokens
	spent    bool      // the last record to be sent could not be
	reported time.Time // when that was last reported
}

func (s *spend) open(setup wire.Setup) (err error) {
	s.limits = setup.Spend
	if s.figures, err = figures.Open(setup.Figures); err != nil {
		return fault.JobFiles.New("count requests: %w", err)
	}
	return nil
}

// reached reports whether no further request may be sent.
func (s *spend) reached() bool {
	reached := s.blind() || s.limits.Requests > 0 && s.figures.Get(figures.Requests) >= s.limits.Requests ||
		s.limits.Tokens > 0 && s.figures.Get(figures.TotalTokens) >= s.limits.Tokens
	s.spent = reached
	return reached
}

// reserve counts a request, unless others have sent the last one meanwhile.
func (s *spend) reserve() bool {
	s.spent = !s.figures.Take(figures.Requests, s.limits.Requests)
	return !s.spent
}

// blindAnswers is after how many answers without tokens a limit of tokens cannot hold.
const blindAnswers = 32

func (s *spend) blind() bool { return s.answers >= blindAnswers }

// add counts what an answer has used.
func (s *spend) add(a plugins.Answer) {
	for name, n := range a.Figures {
		if n > 0 && name != figures.Requests {
			s.figures.Add(name, n)
		}
	}
	if a.Verdict == plugins.Later && a.Figures[figures.Requests] == 0 { // nothing was sent
		s.figures.Add(figures.Requests, -1)
	}
	switch {
	case s.limits.Tokens == 0 || a.Verdict == plugins.Failed || a.Verdict == plugins.Retry || a.Verdict == plugins.Later:
	case s.figures.Get(figures.TotalTokens) > 0:
		s.answers = 0
	default:
		s.answers++
	}
}

// reportEvery is how often a worker reports that it cannot send: at the first report, another worker
// may have given a request back, which is used by now.
const reportEvery = time.Second

// isOver reports, from time to time, that nothing more can be sent. Answers to what was sent are
// awaited first: they are paid for.
func (s *spend) isOver(inFlight int, now time.Time) bool {
	if !s.spent || inFlight > 0 || now.Sub(s.reported) < reportEvery {
		return false
	}
	s.reported = now
	return true
}
