package lease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

const gib = 1 << 30

// given is a lease in force on the GPU with index i.
func given(name string, i int, memory uint64) Lease {
	return Lease{ID: name, Name: name, GPU: uuid(i), Index: i, Label: cards(i + 1)[i].Label,
		Memory: memory, Exclusive: memory == 0, Owned: true, Identity: proc.Identity{PID: 4711}, User: "ann", Created: time.Unix(1, 0)}
}

func TestChoose(t *testing.T) {
	two := 2
	for name, test := range map[string]struct {
		gpus   int
		used   map[int]uint64
		living []Lease
		edit   func(*Request)
		want   []int    // indices
		why    []string // of a refusal
		never  bool
	}{
		"one whole":      {gpus: 2, want: []int{0}},
		"the free one":   {gpus: 2, living: []Lease{given("a", 0, 0)}, want: []int{1}},
		"none is free":   {gpus: 2, living: []Lease{given("a", 0, 0), given("b", 1, 4*gib)}, why: []string{"GPU 0 is held by a (process 4711 of ann", "GPU 1 is held by b"}},
		"most free":      {gpus: 3, used: map[int]uint64{0: 9 * gib, 2: 2 * gib}, want: []int{1}},
		"preferred":      {gpus: 3, used: map[int]uint64{2: 9 * gib}, edit: func(r *Request) { r.Prefer = 2 }, want: []int{2}},
		"preferred, but": {gpus: 3, living: []Lease{given("a", 2, 0)}, edit: func(r *Request) { r.Prefer = 2 }, want: []int{0}},
		"as many as are": {gpus: 4, living: []Lease{given("a", 1, 0)}, edit: func(r *Request) { r.Number = 0 }, want: []int{0, 2, 3}},
		"at most":        {gpus: 4, used: map[int]uint64{0: 9 * gib}, edit: func(r *Request) { r.Number, r.AtMost = 0, 2 }, want: []int{1, 2}},
		"in pairs":       {gpus: 4, living: []Lease{given("a", 1, 0)}, edit: func(r *Request) { r.Number, r.PerGroup = 0, 2 }, want: []int{0, 2}},
		"no pair left":   {gpus: 2, living: []Lease{given("a", 1, 0)}, edit: func(r *Request) { r.Number, r.PerGroup = 0, 2 }, why: []string{"held by a"}},
		"each":           {gpus: 2, edit: func(r *Request) { r.Each = true }, want: []int{0, 1}},
		"not each":       {gpus: 2, living: []Lease{given("a", 1, 0)}, edit: func(r *Request) { r.Each = true }, why: []string{"GPU 1 is held by a"}},
		"too few":        {gpus: 3, living: []Lease{given("a", 1, 0)}, edit: func(r *Request) { r.Number = 3 }, why: []string{"2 of 3 are free", "GPU 1"}},
		"too many":       {gpus: 3, edit: func(r *Request) { r.Number = 4 }, why: []string{"4 requested, but there are only 3"}, never: true},
		"no GPU":         {why: []string{"there are no GPUs"}, never: true},

		"shares":                       {gpus: 1, living: []Lease{given("a", 0, 20*gib)}, edit: func(r *Request) { r.Memory = 50 * gib }, want: []int{0}},
		"memory is short":              {gpus: 1, living: []Lease{given("a", 0, 20*gib)}, edit: func(r *Request) { r.Memory = 61 * gib }, why: []string{"GPU 0 has 81920 MiB", "20480 MiB leased to a", "61440 MiB free, 62464 MiB requested"}},
		"use without a lease counts":   {gpus: 1, used: map[int]uint64{0: 30 * gib}, living: []Lease{given("a", 0, 20*gib)}, edit: func(r *Request) { r.Memory = 51 * gib }, why: []string{"10240 MiB used without a lease", "51200 MiB free"}},
		"all free memory":              {gpus: 1, used: map[int]uint64{0: 30 * gib}, living: []Lease{given("a", 0, 20*gib)}, edit: func(r *Request) { r.Memory = 50 * gib }, want: []int{0}},
		"not next to an exclusive one": {gpus: 1, living: []Lease{given("a", 0, 0)}, edit: func(r *Request) { r.Memory = gib }, why: []string{"held by a"}},
		"reserve":                      {gpus: 1, edit: func(r *Request) { r.Memory, r.Limits.Reserve = 79*gib, gib }, why: []string{"1024 MiB kept in reserve", "79872 MiB free"}},
		"limit":                        {gpus: 1, edit: func(r *Request) { r.Memory, r.Limits.Memory = 7*gib, 6*gib }, why: []string{"7168 MiB requested, but the largest, GPU 0, has 6144 MiB"}, never: true},
		"more than the card":           {gpus: 2, edit: func(r *Request) { r.Memory = 1 << 62 }, why: []string{"the largest, GPU 0, has 81920 MiB"}, never: true},

		"quota":          {gpus: 2, living: []Lease{given("te-st", 0, 4*gib)}, edit: func(r *Request) { r.Name, r.Memory, r.Quota.MaxMemoryMB = "te_st", 4*gib, 8<<10 }, want: []int{1}},
		"quota is spent": {gpus: 2, living: []Lease{given("te-st", 0, 5*gib)}, edit: func(r *Request) { r.Name, r.Memory, r.Quota.MaxMemoryMB = "te_st", 4*gib, 8<<10 }, why: []string{"at most 8192 MiB", "holds 5120 MiB", "requests 4096 MiB"}},
		"quota bounds":   {gpus: 4, edit: func(r *Request) { r.Number, r.Memory, r.Quota.MaxMemoryMB = 0, 4*gib, 8<<10 }, want: []int{0, 1}},
		"quota prefers":  {gpus: 4, edit: func(r *Request) { r.Memory, r.Prefer = gib, Quota{PreferredDevice: &two}.Prefer() }, want: []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := cards(test.gpus)
			for i, used := range test.used {
				gpus[i].Used = used
			}
			got, refusal := choose(ask(0, test.edit), gpus, test.living)
			if len(test.why) > 0 {
				if refusal == nil || refusal.Never != test.never || fault.KindOf(fault.GPUsHeld.Wrap(refusal)) != fault.NoDevice {
					t.Fatalf("got %v, refusal %+v, want one that waiting helps: %v", got, refusal, !test.never)
				}
				for _, text := range test.why {
					if !strings.Contains(refusal.Error(), text) {
						t.Errorf("%q lacks %q", refusal, text)
					}
				}
				return
			}
			var indices []int
			for _, g := range got.GPUs {
				indices = append(indices, g.Index)
			}
			slices.Sort(indices)
			if refusal != nil || !slices.Equal(indices, test.want) {
				t.Errorf("got %v, %v; want %v", indices, refusal, test.want)
			}
		})
	}
}

// A GPU that does not report its memory can only be leased whole.
func TestUnknownMemory(t *testing.T) {
	gpus := []GPU{{Key: "x", Label: "GPU 0"}}
	if got, refusal := choose(ask(0, nil), gpus, nil); refusal != nil || len(got.GPUs) != 1 {
		t.Errorf("whole: %v %v", got, refusal)
	}
	if got, refusal := choose(ask(0, func(r *Request) { r.Memory = 1 }), gpus, nil); refusal == nil {
		t.Errorf("a share: %v", got)
	}
}

func TestWaiting(t *testing.T) {
	f := open(t)
	first := acquire(t, f, ask(1, func(r *Request) { r.Name = "first" }))
	waiting := make(chan string, 8)
	second := make(chan error, 1)
	go func() {
		held, err := f.Acquire(t.Context(), ask(1, func(r *Request) {
			r.Name, r.Wait, r.Waiting = "second", time.Minute, func(why string) { waiting <- why }
		}))
		held.Release()
		second <- err
	}()
	if why := <-waiting; !strings.Contains(why, "GPU 0 is held by first (process ") {
		t.Errorf("waiting for %q", why)
	}
	first.Release()
	if err := <-second; err != nil {
		t.Error(err)
	}
	first.Release() // releasing twice is safe

	acquire(t, f, ask(1, func(r *Request) { r.Name = "third" }))
	_, err := f.Acquire(t.Context(), ask(1, func(r *Request) { r.Wait = waitPause }))
	var refusal *Refusal
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "(waited ") {
		t.Errorf("got %v", err)
	}
	var names []string
	for _, e := range f.History(100) {
		names = append(names, e.Event+" "+e.Lease.Name)
	}
	want := []string{"allocated first", "released first", "allocated second", "released second", "allocated third", "refused test"}
	if !slices.Equal(names, want) {
		t.Errorf("history %q, want %q", names, want)
	}
}

// Keep releases what is not needed and keeps the rest.
func TestKeep(t *testing.T) {
	f := open(t)
	held := acquire(t, f, ask(3, func(r *Request) { r.Number = 3 }))
	held.Keep(func(l Lease) bool { return l.Index == 1 })
	list, err := f.List()
	if err != nil || len(list) != 1 || list[0].Index != 1 || len(held.Leases()) != 1 {
		t.Errorf("left: %+v %v", list, err)
	}
}

func TestDuplicate(t *testing.T) {
	f := open(t)
	reserve := func(edit func(*Request)) error {
		held, err := f.Acquire(t.Context(), ask(2, func(r *Request) {
			r.Name, r.Memory, r.Owned, r.OneOfAName = "embedding", gib, false, true
			edit(r)
		}))
		if err == nil {
			held.Detach()
		}
		return err
	}
	only := func(i int) func(*Request) {
		return func(r *Request) { r.GPUs, r.Named = fixed(cards(2)[i:i+1]), true }
	}
	if err := reserve(func(*Request) {}); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Request){"anywhere": func(*Request) {}, "the same": only(0)} {
		if err := reserve(edit); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "embedding already holds 1024 MiB of GPU 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := reserve(only(1)); err != nil {
		t.Errorf("on another GPU: %v", err)
	}
	if _, err := f.Deallocate(t.Context(), "embedding", "1"); err != nil {
		t.Error(err)
	}
	freed, err := f.Deallocate(t.Context(), "embedding", "")
	if err != nil || len(freed) != 1 || freed[0].Index != 0 {
		t.Errorf("freed %+v %v", freed, err)
	}
	if _, err := f.Deallocate(t.Context(), "embedding", ""); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "there are no leases") {
		t.Errorf("nothing to give back: %v", err)
	}
	acquire(t, f, ask(1, nil))
	if _, err := f.Deallocate(t.Context(), "nobody", "0"); !strings.Contains(err.Error(), "leases are held by test (process") {
		t.Errorf("unknown: %v", err)
	}
	if _, err := f.Deallocate(t.Context(), "test", ""); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "held by a running process") {
		t.Errorf("a living owner's: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "-x", "a b", "a/b", "a\n", strings.Repeat("x", 65), "é"} {
		if CheckName(name) == nil {
			t.Errorf("%q was let through", name)
		}
	}
	if err := CheckName("embedding-service_2.0"); err != nil {
		t.Error(err)
	}
}
