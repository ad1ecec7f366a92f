package plugins

import (
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

func packAnswer(number uint64, a Answer) *kernelpb.Answer {
	return &kernelpb.Answer{
		Number: number, Verdict: uint32(a.Verdict), Lines: a.Lines,
		Message: valid(a.Message), Detail: valid(a.Detail), Failure: packFailure(a.Err),
		AfterMilliseconds: uint64(max(a.After, 0).Milliseconds()), Nulls: uint32(min(max(a.Nulls, 0), math.MaxUint32)), Figures: a.Figures, Server: uint32(a.Server),
	}
}

// unpackAnswer returns an answer from the other process, as the contract allows it.
func (l *link) unpackAnswer(message *kernelpb.Answer) Answer {
	a := Answer{
		Verdict: Verdict(min(message.GetVerdict(), math.MaxUint8)), Lines: message.GetLines(),
		Message: message.GetMessage(), Detail: message.GetDetail(), Nulls: int64(message.GetNulls()), Figures: message.GetFigures(),
		Server: ServerState(min(message.GetServer(), math.MaxUint8)),
		Err:    l.unpackComputing(message.GetFailure(), fault.Batch),
		After:  time.Duration(min(message.GetAfterMilliseconds(), maxAfter)) * time.Millisecond,
	}
	return a.checked(l.isOnCPU())
}

// maxAfter is the longest time, in milliseconds, that a kernel can ask to wait: a day.
const maxAfter = 24 * 60 * 60 * 1000
