package gpu

import (
	"context"
	"errors"
	"runtime"
	"time"
)

const (
	// waitTime is how long one wait for an event takes at most, and so how long
	// the end of the context goes unseen by a driver that works.
	waitTime = 200 * time.Millisecond
	// leaveTime is how long the end of the context waits for the driver.
	leaveTime = time.Second
	// errorPause is between two waits that fail, which they do at once.
	errorPause = time.Second
)

// WatchXids calls report for every critical error (Xid) that the driver tells of
// these devices, and once with Xid 79 for one that NVML calls lost without having
// told why. It returns when ctx ends, always nil: it is a goroutine of an errgroup.
//
// It never harms a job. Where there is no driver, or one without such events, or
// where Init fails, it waits for the end of ctx and reports nothing; a driver that
// hangs is left behind with its thread, and holds up the end for a second at most.
// A MIG instance is told of what happens to its parent. CPU devices, and devices of
// which it is not known which they are (see Inventory.Note), are not watched. Of
// Options it uses NVML.
//
// report is called on the caller's goroutine, one event at a time, and may take its
// time. One error can show as several events, of one Xid or of different ones.
func WatchXids(ctx context.Context, devices []Device, opts Options, report func(XidEvent)) error {
	opts = opts.withDefaults()
	w := &xidWatch{api: opts.NVML, events: make(chan XidEvent)}
	w.source, _ = opts.NVML.(Events)
	for _, d := range devices {
		if d.Kind == GPU && (d.Parent != nil || !isMIG(d.Token)) {
			w.devices = append(w.devices, d)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if w.source == nil || len(w.devices) == 0 {
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

// xidWatch is the side of WatchXids that talks to the driver, on a thread of its
// own: an inventory may be taken meanwhile.
type xidWatch struct {
	api     API
	source  Events
	devices []Device
	events  chan XidEvent
}

// watchedGPU is a GPU and what of the inventory it is.
type watchedGPU struct {
	handle  Handle
	uuid    string
	devices []Device
	lost    bool // and reported
}

func (w *xidWatch) run(ctx context.Context) {
	if w.api.Init() != nil {
		return // and not a single call more
	}
	defer func() { _ = w.api.Shutdown() }()
	// A set with a lost GPU tells only of that, at once and again and again: the
	// others go on in a new one.
	for gpus := w.find(ctx); len(gpus) > 0 && ctx.Err() == nil; {
		gpus = w.watch(ctx, gpus)
	}
}

// find returns the GPUs that are to be watched.
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

// places are the indices at which the inventory has found the devices' GPUs: others are
// not asked, since one of them may hang. Where an inventory does not know, it is all.
func (w *xidWatch) places(count int) (indices []int) {
	known := make(map[int]bool)
	for _, d := range w.devices {
		switch {
		case d.Parent != nil:
			known[d.Parent.Index] = true
		case d.Kind == GPU && d.Ambiguous == "" && !isMIG(d.Token):
			known[d.Index] = true
		}
	}
	for i := range count {
		if known[i] || len(known) == 0 {
			indices = append(indices, i)
		}
	}
	return indices
}

// watch reports the events of these GPUs until ctx ends or one of them is lost,
// and returns those that are left to be watched.
func (w *xidWatch) watch(ctx context.Context, gpus []*watchedGPU) []*watchedGPU {
	set, err := w.source.NewEventSet()
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
			if left := w.sortOut(ctx, watched); len(left) < len(watched) {
				return left
			}
			pause(ctx, errorPause)
		default:
			pause(ctx, errorPause)
		}
	}
	return nil
}

// whose finds the GPU of an event. A lost one may not tell its UUID any more.
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

// sortOut reports the GPUs that are lost and returns the others. It asks for the
// memory since that needs the card; a UUID may be remembered.
func (w *xidWatch) sortOut(ctx context.Context, gpus []*watchedGPU) (left []*watchedGPU) {
	for _, g := range gpus {
		if _, _, err := g.handle.Memory(); errors.Is(err, ErrLost) {
			w.reportLost(ctx, g)
		} else {
			left = append(left, g)
		}
	}
	return left
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
