package lease

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// fillHistory writes n leases that were taken and released, in lines long enough that the
// history is cut soon.
func fillHistory(t *testing.T, f *Folder, n int) {
	t.Helper()
	var lines bytes.Buffer
	for i := range n {
		l := f.describe(ask(1, nil), cards(1)[0])
		l.Host = strings.Repeat("x", 8<<10)
		for _, event := range []string{Allocated, Released} {
			line, err := json.Marshal(Event{Time: time.Unix(int64(i), 0), Event: event, Lease: l})
			must(t, err)
			lines.Write(append(line, '\n'))
		}
	}
	file, err := os.OpenFile(f.historyPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = file.Write(lines.Bytes())
	must(t, err)
	must(t, file.Close())
}

func statistics(t *testing.T, f *Folder) Statistics {
	t.Helper()
	s, err := f.Statistics()
	must(t, err)
	if s.Allocated != s.Held+s.Released+s.OwnerDied+s.Expired+s.Damaged+s.Unaccounted {
		t.Errorf("it does not add up: %+v", s)
	}
	return s
}

// Statistics add up, although the oldest events are dropped.
func TestStatisticsAddUpAfterHistoryIsCut(t *testing.T) {
	t.Parallel()
	f := open(t)
	for round := range 3 {
		fillHistory(t, f, 100) // over the limit: the next event cuts it
		acquire(t, f, ask(1, nil)).Release()
		// The release of the round before is in the history that replaces the previous one.
		n := 101 + min(round, 1)
		if got, want := statistics(t, f), (Statistics{Allocated: n, Released: n}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	acquire(t, f, ask(2, nil))
	_, _ = f.Acquire(t.Context(), ask(1, nil))
	write(uuid(7)+"~dead.lease", `{"id":"dead","name":"a","gpu":"`+uuid(7)+`","owned":true}`)(t, f)
	got := statistics(t, f)
	if got.Held != 1 || got.Refused != 1 || got.OwnerDied != 1 {
		t.Errorf("got %+v", got)
	}
	if info, err := os.Stat(f.historyPath()); err != nil || info.Size() > maxHistory {
		t.Errorf("the history was not cut: %v, %v", info.Size(), err)
	}
}

// Concurrent writers lose no event while the history is cut.
func TestHistoryIsCutByOneOfMany(t *testing.T) {
	t.Parallel()
	f := open(t)
	fillHistory(t, f, 63) // 1 MiB is 64
	const writers, each = 8, 10
	var all sync.WaitGroup
	for range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for range each {
				l := f.describe(ask(1, nil), cards(1)[0])
				l.Host = strings.Repeat("y", 4<<10)
				f.record(Event{Event: Allocated, Lease: l})
				f.record(Event{Event: Released, Lease: l})
			}
		}()
	}
	all.Wait()
	const n = 63 + writers*each
	if got, want := statistics(t, f), (Statistics{Allocated: n, Released: n}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
