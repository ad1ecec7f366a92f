package lease

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Deallocate ends the leases of a name that have no owner, on one GPU or, with
// index -1, on all. It waits for the folder's lock until ctx ends, and returns what
// is free now.
//
// A lease whose owner lives is not taken from it: the error says whose it is. A
// name without a lease is a fault.Usage that names those there are.
func (f *Folder) Deallocate(ctx context.Context, name string, index int) ([]Lease, error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := f.read(time.Now())
	if err != nil {
		return nil, err
	}
	living := f.sweep(all, time.Now())
	var freed []Lease
	for _, l := range all {
		if l.ended != "" || !SameName(l.Name, name) || index >= 0 && l.Index != index {
			continue
		}
		if l.Owned {
			return freed, fault.New(fault.Conflict, "%s is held by a running process, %s: it ends with that", l.Label, l.Lease)
		}
		switch err := os.Remove(l.path); {
		case errors.Is(err, os.ErrPermission):
			return freed, fault.New(fault.Conflict, "%s of %s belongs to %s, who alone can give it back", l.Label, l.Name, l.User)
		case err != nil:
			return freed, f.unusable("remove a lease", err)
		}
		f.note(Event{Time: time.Now(), Event: Released, Lease: l.Lease})
		freed = append(freed, l.Lease)
	}
	if len(freed) == 0 {
		return nil, unknown(name, index, living)
	}
	return freed, nil
}

func unknown(name string, index int, living []Lease) error {
	where := ""
	if index >= 0 {
		where = " on that GPU"
	}
	if len(living) == 0 {
		return usage("%s holds no lease%s: there is none at all", name, where)
	}
	return usage("%s holds no lease%s; there are those of %s", name, where, holders(living))
}
