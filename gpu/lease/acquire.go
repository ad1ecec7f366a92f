package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/owned"
	"github.com/gpurun/gpurun/internal/proc"
)

// waitPause is the time between two attempts while waiting for a release.
const waitPause = 200 * time.Millisecond

// Held is the set of leases that a request got.
type Held struct {
	folder  *Folder
	missing map[string]string
	mu      sync.Mutex
	leases  []Lease
	files   []*os.File // one per lease
}

// Acquire takes everything that is requested or nothing, and waits up to Request.Wait
// for it. Errors are a *Refusal (fault.NoDevice), an *UnusableError, a fault.Usage for
// a name that already holds a lease, or fault.Canceled when ctx ends.
func (f *Folder) Acquire(ctx context.Context, r Request) (*Held, error) {
	started := time.Now()
	reported := ""
	for {
		held, err := f.try(ctx, r)
		var refusal *Refusal
		switch {
		case ctx.Err() != nil:
			held.Release()
			return nil, fault.Interrupted.New("wait for a GPU: %w", context.Cause(ctx))
		case err == nil, !errors.As(err, &refusal):
			return held, err
		}
		waited := time.Since(started)
		if refusal.Never || waited+waitPause/2 > r.Wait {
			if r.Wait > 0 && !refusal.Never {
				refusal.waited = waited
			}
			f.record(Event{Event: Refused, Lease: f.describe(r, GPU{}), Why: refusal.Error()})
			return nil, fault.GPUsHeld.Wrap(refusal)
		}
		if r.Waiting != nil && refusal.why != reported {
			reported = refusal.why
			r.Waiting(reported)
		}
		select {
		case <-time.After(min(waitPause, r.Wait-waited)):
		case <-ctx.Done():
		}
	}
}

// lockTime is how long one attempt waits for the folder's lock.
const lockTime = time.Second

// try makes one attempt.
func (f *Folder) try(ctx context.Context, r Request) (*Held, error) {
	gpus, err := r.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	held := &Held{folder: f}
	err = f.locked(ctx, func(_ []found, living []Lease) error {
		if err := r.duplicate(gpus, living); err != nil {
			return err
		}
		chosen, refusal := choose(r, gpus, living)
		if refusal != nil {
			return refusal
		}
		held.missing = chosen.Missing
		for _, g := range chosen.GPUs {
			l := f.describe(r, g)
			file, err := f.create(l)
			if err != nil {
				return err
			}
			held.leases, held.files = append(held.leases, l), append(held.files, file)
			f.record(Event{Event: Allocated, Lease: l})
		}
		return nil
	})
	var kept keptError
	if errors.As(err, &kept) {
		err = &Refusal{Name: r.Name, why: kept.Error()}
	}
	if err != nil {
		held.Release()
		return nil, err
	}
	return held, nil
}

// duplicate rejects a second lease under the same name if OneOfAName is set.
func (r Request) duplicate(gpus []GPU, living []Lease) error {
	if !r.OneOfAName {
		return nil
	}
	for _, l := range living {
		there := slices.ContainsFunc(gpus, l.on)
		if SameName(l.Name, r.Name) && (there || !r.Named) {
			return fault.Leased.New("%s already holds %s of %s", l.Name, l.Share(), l.Label).Set(l.Name)
		}
	}
	return nil
}

// Preview is what a request would get.
type Preview struct {
	GPUs []GPU
	// Missing explains, by key, why a GPU is not available.
	Missing map[string]string
	// Wait is what the request would have to wait for; "" for nothing. If it is set,
	// GPUs are those the request would get on an idle host.
	Wait string
}

// Preview decides as Acquire would right now, but takes nothing. f may be nil, for a
// host without leases. It fails as Acquire does.
func (f *Folder) Preview(ctx context.Context, r Request) (Preview, error) {
	gpus, err := r.GPUs(ctx)
	if err != nil {
		return Preview{}, err
	}
	var living []Lease
	if f != nil {
		if living, err = f.List(); err != nil {
			return Preview{}, err
		}
	}
	if err := r.duplicate(gpus, living); err != nil {
		return Preview{}, err
	}
	wait := ""
	chosen, refusal := choose(r, gpus, living)
	if refusal != nil && !refusal.Never {
		wait = refusal.why
		chosen, refusal = choose(r, unused(gpus), nil)
	}
	if refusal != nil {
		return Preview{}, fault.GPUsHeld.Wrap(refusal)
	}
	chosen.Wait = wait
	return chosen, nil
}

// unused is the GPUs as if they were idle.
func unused(gpus []GPU) []GPU {
	free := slices.Clone(gpus)
	for i := range free {
		free[i].Used = 0
	}
	return free
}

// describe returns the lease that a request gets on a GPU.
func (f *Folder) describe(r Request, g GPU) Lease {
	host, _ := os.Hostname()
	l := Lease{
		ID: rand.Text()[:12], Name: r.Name, GPU: g.Key, Index: g.Index, Label: g.Label,
		Memory: r.Memory, Exclusive: r.Memory == 0, Owned: r.Owned,
		Identity: proc.Self(), User: files.UserName(os.Getuid()), Host: host,
		Created: time.Now(),
	}
	if r.TTL > 0 {
		l.Expires = l.Created.Add(r.TTL)
	}
	return l
}

// Extend acquires further leases, which are released with these.
func (h *Held) Extend(ctx context.Context, r Request) error {
	more, err := h.folder.Acquire(ctx, r)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases, h.files = append(h.leases, more.leases...), append(h.files, more.files...)
	return nil
}

// Leases returns the leases held.
func (h *Held) Leases() []Lease {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.leases)
}

// Missing explains, by key, why GPUs were not available.
func (h *Held) Missing() map[string]string { return h.missing }

// Files are the lease files, for a child process that must hold the leases too: an
// owned lease lasts until the last process that has its file open exits.
func (h *Held) Files() []*os.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.files)
}

// Release releases all leases. It is safe to call on nil and more than once.
func (h *Held) Release() { h.Keep(func(Lease) bool { return false }) }

// Keep releases the leases that are not needed.
func (h *Held) Keep(needed func(Lease) bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var leases []Lease
	var files []*os.File
	for i, l := range h.leases {
		if needed(l) {
			leases, files = append(leases, l), append(files, h.files[i])
			continue
		}
		if owned.Remove(filepath.Join(h.folder.path, fileName(l)), h.files[i]) {
			h.folder.record(Event{Event: Released, Lease: l})
		}
	}
	h.leases, h.files = leases, files
}

// Detach closes the files of leases without an owner, which outlive this process.
// Nothing is held afterwards.
func (h *Held) Detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, file := range h.files {
		_ = file.Close()
	}
	h.leases, h.files = nil, nil
}

// Deallocate releases the leases under a name that have no owner: on one GPU, given
// by its index, a prefix of its UUID or, for a MIG instance, "2:0"; with "", on all. It waits for the
// folder's lock until ctx ends, and returns the leases it released.
//
// It does not take a lease from a running owner: it then releases nothing, and the
// error names the owner. A name without a lease is a fault.Usage that lists the
// existing leases.
func (f *Folder) Deallocate(ctx context.Context, name, gpu string) ([]Lease, error) {
	if err := checkGPU(gpu); err != nil {
		return nil, err
	}
	var freed []Lease
	err := f.locked(ctx, func(all []found, living []Lease) error {
		var meant []found
		for _, l := range all {
			if l.ended != "" || !SameName(l.Name, name) || !l.named(gpu) {
				continue
			}
			if l.Owned {
				return fault.LeaseInUse.New("%s is held by a running process, %s: the lease ends when that process exits", l.Label, l.Lease)
			}
			meant = append(meant, l)
		}
		if len(meant) == 0 {
			return unknown(name, gpu, living)
		}
		for _, l := range meant {
			switch err := os.Remove(l.path); {
			case errors.Is(err, os.ErrPermission):
				return fault.LeaseInUse.New("the lease of %s by %s belongs to %s: only that user can release it", l.Label, l.Name, l.User)
			case err != nil:
				return f.unusable("remove a lease", err)
			}
			f.record(Event{Event: Released, Lease: l.Lease})
			freed = append(freed, l.Lease)
		}
		return nil
	})
	return freed, err
}

// migLabel begins the label of a MIG instance, "MIG 2:0"; its id follows.
const migLabel = "MIG "

// instanceID is the id of a MIG instance.
var instanceID = regexp.MustCompile(`^\d+:\d+$`)

// checkGPU rejects what is neither an index, nor a MIG instance, nor a UUID prefix.
func checkGPU(gpu string) error {
	if gpu == "" || instanceID.MatchString(gpu) || strings.HasPrefix(gpu, "GPU-") || strings.HasPrefix(gpu, "MIG-") || strings.Trim(gpu, "0123456789") == "" {
		return nil
	}
	return fault.BadLease.New("%q is neither the index of a GPU (0, 1, …), nor a MIG instance (2:0), nor a UUID (GPU-…, MIG-…)", gpu)
}

// named reports whether the lease is on the GPU with this index or UUID prefix, or on this
// MIG instance.
func (l Lease) named(gpu string) bool {
	if index, err := strconv.Atoi(gpu); err == nil {
		return l.Index == index
	}
	if instanceID.MatchString(gpu) {
		return l.Label == migLabel+gpu
	}
	return len(l.GPU) >= len(gpu) && strings.EqualFold(l.GPU[:len(gpu)], gpu)
}

func unknown(name, gpu string, living []Lease) error {
	where := ""
	if gpu != "" {
		where = " on that GPU"
	}
	if len(living) == 0 {
		return fault.BadLease.New("%s holds no lease%s: there are no leases", name, where)
	}
	return fault.BadLease.New("%s holds no lease%s; leases are held by %s", name, where, holders(living))
}
