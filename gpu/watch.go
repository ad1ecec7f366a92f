package gpu

import (
	"context"
	"errors"
	"runtime"
	"time"
)

const (
	// waitTime is how long one wait for an event takes at most, and so how late a
	// working driver notices the end of the context.
	waitTime = 200 * time.Millisecond
	// leaveTime is how long to wait for the driver when the context ends.
	leaveTime = time.Second
	// errorPause is the pause between two failing waits, which return at once.
	errorPause = time.Second
)

// WatchXids calls report for every critical error (Xid) that the driver reports for these
// devices, and once with Xid 79 for one that NVML calls lost without an event. It returns
// when ctx ends, always nil, so that it fits an errgroup.
//
// It never harms a job. Without a driver, with one that has no such events, or if Init
// fails, it waits for the end of ctx and reports nothing. A driver that hangs is abandoned
// with its thread and delays the end by at most a second. A MIG instance gets the events
// of its parent. CPU devices, and devices that cannot be identified (see Inventory.Note),
// are not watched. Of Options it uses only NVML.
//
// report is called on the caller's goroutine, one event at a time, and may be slow. One
// error can cause several events, with the same Xid or different ones.
func WatchXids(ctx context.Context, devices []Device, opts Options, report func(XidEvent)) error {
	opts = opts.withDefaults()
	w := &xidWatch{api: opts.NVML, events: make(chan XidEvent)}
	for _, d := range devices {
		if d.Kind == GPU && (d.Parent != nil || !isMIG(d.Token)) {
			w.devices = append(w.devices, d)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if len(w.devices) == 0 {
			return
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w.run(ctx)
	}()
	for {
		select {
		case event := <-w.events:
			report(event)
		case <-ctx.Done():
			select {
			case <-ended:
			case <-time.After(leaveTime): // the driver hangs
			}
			return nil
		}
	}
}

// xidWatch is the part of WatchXids that calls the driver, on its own thread: an
// inventory may be taken meanwhile.
type xidWatch struct {
	api     API
	devices []Device
	events  chan XidEvent
}

// watchedGPU is a GPU and its devices in the inventory.
type watchedGPU struct {
	handle  Handle
	uuid    string
	devices []Device
	lost    bool // reported as lost
}

func (w *xidWatch) run(ctx context.Context) {
	if w.api.Init() != nil {
		return // no further call
	}
	defer func() { _ = w.api.Shutdown() }()
	// A set with a lost GPU reports only that, immediately and repeatedly, so the other
	// GPUs move to a new set.
	for gpus := w.find(ctx); len(gpus) > 0 && ctx.Err() == nil; {
		gpus = w.watch(ctx, gpus)
	}
}

// find returns the GPUs to watch.
func (w *xidWatch) find(ctx context.Context) []*watchedGPU {
	count, err := w.api.Count()
	if err != nil {
		return nil
	}
	var found []*watchedGPU
	for _, i := range w.places(count) {
		if ctx.Err() != nil {
			return nil
		}
		handle, err := w.api.Device(i)
		if err != nil {
			continue
		}
		g := &watchedGPU{handle: handle}
		if uuid, err := handle.UUID(); err == nil {
			g.uuid = uuid
		}
		for _, d := range w.devices {
			if d.isOn(i, g.uuid) {
				g.devices = append(g.devices, d)
			}
		}
		if len(g.devices) > 0 {
			found = append(found, g)
		}
	}
	return found
}

// places are the indices at which the inventory found the devices' GPUs. Others are not
// queried, because one of them may hang. If the inventory does not know, it is all of them.
func (w *xidWatch) places(count int) (indices []int) {
	known := make(map[int]bool)
	for _, d := range w.devices {
		if d.Parent != nil || d.Ambiguous == "" {
			known[d.home()] = true
		}
	}
	for i := range count {
		if known[i] || len(known) == 0 {
			indices = append(indices, i)
		}
	}
	return indices
}

// watch reports the events of these GPUs until ctx ends or one of them is lost, and
// returns the remaining ones.
func (w *xidWatch) watch(ctx context.Context, gpus []*watchedGPU) []*watchedGPU {
	set, err := w.api.NewEventSet()
	if err != nil {
		return nil
	}
	defer func() { _ = set.Free() }()
	var watched []*watchedGPU
	for _, g := range gpus {
		switch err := set.Add(g.handle); {
		case err == nil:
			watched = append(watched, g)
		case errors.Is(err, ErrLost):
			w.reportLost(ctx, g)
		}
	}
	for len(watched) > 0 && ctx.Err() == nil {
		handle, xid, err := set.Wait(waitTime)
		switch {
		case err == nil:
			if g := whose(handle, watched); g != nil {
				g.lost = g.lost || xid == lostXid
				w.report(ctx, g, xid)
			}
		case errors.Is(err, ErrTimeout):
		case errors.Is(err, ErrLost):
			if remaining := w.sortOut(ctx, watched); len(remaining) < len(watched) {
				return remaining
			}
			pause(ctx, errorPause)
		default:
			pause(ctx, errorPause)
		}
	}
	return nil
}

// whose finds the GPU of an event. A lost GPU may no longer report its UUID.
func whose(handle Handle, gpus []*watchedGPU) *watchedGPU {
	for _, g := range gpus {
		if g.handle == handle {
			return g
		}
	}
	if uuid, err := handle.UUID(); err == nil && uuid != "" {
		for _, g := range gpus {
			if g.uuid == uuid {
				return g
			}
		}
	}
	if len(gpus) == 1 {
		return gpus[0]
	}
	return nil
}

// sortOut reports the lost GPUs and returns the others. It queries the memory because
// that needs the card; a UUID may be cached.
func (w *xidWatch) sortOut(ctx context.Context, gpus []*watchedGPU) (remaining []*watchedGPU) {
	for _, g := range gpus {
		if _, err := g.handle.Memory(); errors.Is(err, ErrLost) {
			w.reportLost(ctx, g)
		} else {
			remaining = append(remaining, g)
		}
	}
	return remaining
}

func (w *xidWatch) reportLost(ctx context.Context, g *watchedGPU) {
	if !g.lost {
		g.lost = true
		w.report(ctx, g, lostXid)
	}
}

func (w *xidWatch) report(ctx context.Context, g *watchedGPU, xid uint64) {
	for _, d := range g.devices {
		select {
		case w.events <- XidEvent{Device: d, Xid: xid}:
		case <-ctx.Done():
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
