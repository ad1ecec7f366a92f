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

// Statistics count everything, including what was cut from the history.
func TestStatisticsAddUpAfterHistoryIsCut(t *testing.T) {
	t.Parallel()
	f := open(t)
	want := Statistics{}
	for range 3 {
		fillHistory(t, f, 100) // over the limit: the next event cuts it
		acquire(t, f, ask(1, nil)).Release()
		want.Allocated, want.Released = want.Allocated+101, want.Released+101
		if got := statistics(t, f); got != want {
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
	events, err := f.History(10000)
	must(t, err)
	for _, e := range events {
		if e.Event == totalled {
			t.Errorf("a total in the history: %+v", e)
		}
	}
}

// Concurrent writers lose no event while the history is cut.
func TestHistoryIsCutByOneOfMany(t *testing.T) {
	t.Parallel()
	f := open(t)
	fillHistory(t, f, 60)
	const writers, each = 8, 10
	var all sync.WaitGroup
	for range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for range each {
				l := f.describe(ask(1, nil), cards(1)[0])
				l.Host = strings.Repeat("y", 8<<10)
				f.note(Event{Time: time.Now(), Event: Allocated, Lease: l})
				f.note(Event{Time: time.Now(), Event: Released, Lease: l})
			}
		}()
	}
	all.Wait()
	const n = 60 + writers*each
	if got, want := statistics(t, f), (Statistics{Allocated: n, Released: n}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
