package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// An output with columns has one layout. The first attempt with a result proposes it, and all
// others adopt it: layout.json is created once and never changes.

// agreedLayout is layout.json.
type agreedLayout struct {
	Run    string         `json:"run"`
	Layout columns.Layout `json:"layout"`
}

// Agreement is what the machines of a run have agreed on: layout.json.
type Agreement struct {
	path, run string
	wait      func() error // before a layout is proposed; nil: not at all
}

// Layout returns the layout that the machines have agreed on, nil if there is none yet.
func (a Agreement) Layout() (*columns.Layout, error) {
	var agreed agreedLayout
	switch err := readJSON(a.path, &agreed); {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, storage("read the layout", err)
	case agreed.Run != a.run:
		return nil, fault.RunDamaged.New("%s is not a layout of this run", a.path)
	}
	if err := agreed.Layout.Validate(); err != nil {
		return nil, fault.RunDamaged.New("%s is damaged: %w", a.path, err)
	}
	return &agreed.Layout, nil
}

// FixLayout proposes a layout and returns the one that holds: the first that was proposed.
func (a Agreement) FixLayout(proposed columns.Layout) (columns.Layout, error) {
	if a.wait != nil {
		if err := a.wait(); err != nil {
			return proposed, err
		}
	}
	own := a.path + "." + randomName()
	if err := writeJSON(own, agreedLayout{Run: a.run, Layout: proposed}); err != nil {
		return proposed, err
	}
	defer os.Remove(own)
	if won, err := publish(own, a.path); err != nil || won {
		crash.Point("layout-agreed")
		return proposed, err
	}
	agreed, err := a.Layout()
	if err != nil {
		return proposed, err
	}
	return *agreed, nil
}

// layoutWait is how long other shards wait for the first one to propose the layout.
const layoutWait = 10 * time.Second

// Agreement is Run.Agreement for the shard of the attempt. While the first shard is being computed, it
// may decide, so that the layout does not depend on which machine is faster: others wait for it
// until it has ended or takes too long.
func (a *Attempt) Agreement(ctx context.Context) Agreement {
	agreement := a.run.Agreement()
	agreement.wait = func() error {
		for waited := time.Duration(0); a.Shard > 0 && waited < layoutWait && a.firstIsComputed(); waited += layoutPoll {
			agreed, err := agreement.Layout()
			if err != nil || agreed != nil {
				break // FixLayout returns it
			}
			select {
			case <-time.After(layoutPoll):
			case <-ctx.Done():
				return stopped(ctx, ctx.Err())
			}
		}
		return nil
	}
	return agreement
}

const layoutPoll = 100 * time.Millisecond

// firstIsComputed reports whether an attempt at the first shard has begun and is not known to have
// ended.
func (a *Attempt) firstIsComputed() bool {
	r := a.run
	claims, err := r.claims()
	number := claims[key(0)]
	var info attemptInfo
	if err != nil || number == 0 || r.isCommitted(0) || readJSON(r.claimPath(key(0), number), &info) != nil || info.ended() {
		return false
	}
	_, err = os.Stat(filepath.Join(r.attemptDir(info.Attempt), endFile))
	return errors.Is(err, os.ErrNotExist)
}
