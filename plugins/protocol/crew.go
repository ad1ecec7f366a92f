package protocol

import "context"

// crew makes calls in goroutines that are reused, because their stacks have grown.
type Crew struct {
	idle chan func() // to goroutines without work
	end  <-chan struct{}
}

func NewCrew(ctx context.Context) Crew { return Crew{make(chan func()), ctx.Done()} }

func (c Crew) Do(call func()) {
	select {
	case c.idle <- call:
	default:
		go c.work(call)
	}
}

// work makes a call, and then others until the end.
func (c Crew) work(call func()) {
	for {
		call()
		select {
		case call = <-c.idle:
		case <-c.end:
			return
		}
	}
}
