package lease

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Deallocate releases the leases under a name that have no owner: on one GPU, given
// by its index or a prefix of its UUID, or, with "", on all. It waits for the
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
	err := f.locked(ctx, func(all []found, living []Lease) (events []Event, err error) {
		var meant []found
		for _, l := range all {
			if l.ended != "" || !SameName(l.Name, name) || !l.named(gpu) {
				continue
			}
			if l.Owned {
				return nil, fault.New(fault.Conflict, "%s is held by a running process, %s: the lease ends when that process exits", l.Label, l.Lease)
			}
			meant = append(meant, l)
		}
		if len(meant) == 0 {
			return nil, unknown(name, gpu, living)
		}
		for _, l := range meant {
			switch err := os.Remove(l.path); {
			case errors.Is(err, os.ErrPermission):
				return events, fault.New(fault.Conflict, "the lease of %s by %s belongs to %s: only that user can release it", l.Label, l.Name, l.User)
			case err != nil:
				return events, f.unusable("remove a lease", err)
			}
			events = append(events, Event{Time: time.Now(), Event: Released, Lease: l.Lease})
			freed = append(freed, l.Lease)
		}
		return events, nil
	})
	return freed, err
}

// checkGPU rejects what is neither an index nor a UUID prefix.
func checkGPU(gpu string) error {
	if gpu == "" || strings.HasPrefix(gpu, "GPU-") || strings.HasPrefix(gpu, "MIG-") || strings.Trim(gpu, "0123456789") == "" {
		return nil
	}
	return usage("%q is neither the index of a GPU (0, 1, …) nor a UUID (GPU-…, MIG-…)", gpu)
}

// named reports whether the lease is on the GPU with this index or UUID prefix.
func (l Lease) named(gpu string) bool {
	if index, err := strconv.Atoi(gpu); err == nil {
		return l.Index == index
	}
	return len(l.GPU) >= len(gpu) && strings.EqualFold(l.GPU[:len(gpu)], gpu)
}

func unknown(name, gpu string, living []Lease) error {
	where := ""
	if gpu != "" {
		where = " on that GPU"
	}
	if len(living) == 0 {
		return usage("%s holds no lease%s: there are no leases", name, where)
	}
	return usage("%s holds no lease%s; leases are held by %s", name, where, holders(living))
}
