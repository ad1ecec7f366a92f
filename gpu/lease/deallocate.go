package lease

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

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
	err := f.locked(ctx, func(all []found, living []Lease) (events []Event, err error) {
		var meant []found
		for _, l := range all {
			if l.ended != "" || !SameName(l.Name, name) || !l.named(gpu) {
				continue
			}
			if l.Owned {
				return nil, fault.LeaseInUse.New("%s is held by a running process, %s: the lease ends when that process exits", l.Label, l.Lease)
			}
			meant = append(meant, l)
		}
		if len(meant) == 0 {
			return nil, unknown(name, gpu, living)
		}
		for _, l := range meant {
			switch err := os.Remove(l.path); {
			case errors.Is(err, os.ErrPermission):
				return events, fault.LeaseInUse.New("the lease of %s by %s belongs to %s: only that user can release it", l.Label, l.Name, l.User)
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
