package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"

	"github.com/gpurun/gpurun/internal/wire"
)

// files writes n files of the given size and returns their folder.
func files(t testing.TB, n, size int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(body(size)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The bytes in memory stay within the limit, but for the files that the caller has waited
// for, and the caller never waits forever, in whatever order files arrive.
func TestRoom(t *testing.T) {
	const size, limit = 1000, 3500
	slow := make(chan struct{})
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" { // the first one arrives last
			<-slow
		}
		io.WriteString(w, body(size))
	})
	dir := files(t, 100, size)
	f := open(t, Options{Fetch: wire.Fetch{Root: dir, Concurrency: 8, PerHost: 8, Timeout: 30 * time.Second}, HoldBytes: limit, permit: permit})
	go func() {
		time.Sleep(50 * time.Millisecond)
		close(slow)
	}()
	items := make(chan *Item, 100)
	go func() {
		defer close(items)
		for i := range 100 {
			value := fmt.Sprint(i)
			if i%2 == 0 {
				value = server.URL + "/" + value
			}
			items <- f.Start(t.Context(), Named(value))
		}
	}()
	var held []*Item
	for item := range items {
		if failure := item.Wait(t.Context()); failure != nil || len(item.Bytes()) != size {
			t.Fatalf("%d bytes, %v", len(item.Bytes()), failure)
		}
		if used := used(f); used > limit+3*(size+1) { // the caller has up to three
			t.Errorf("%d bytes are in memory", used)
		}
		if held = append(held, item); len(held) > 2 {
			held[0].Release()
			held = held[1:]
		}
	}
	for _, item := range held {
		item.Release()
	}
}

func used(f *Fetcher) int64 {
	f.room.mu.Lock()
	defer f.room.mu.Unlock()
	return f.room.used
}

// While a fetch waits for room, its time stands still.
func TestPausedFetchDoesNotExpire(t *testing.T) {
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body(2000)) })
	patient := quick
	patient.idle = time.Second
	f := open(t, Options{Fetch: wire.Fetch{Timeout: time.Second}, HoldBytes: 2500, permit: permit, limits: patient})
	first := f.Start(t.Context(), Named(server.URL+"/1"))
	if failure := first.Wait(t.Context()); failure != nil {
		t.Fatal(failure)
	}
	second := f.Start(t.Context(), Named(server.URL+"/2"))
	time.Sleep(1200 * time.Millisecond) // longer than the limits
	select {
	case <-second.done:
		t.Error("it has not waited for room")
	default:
	}
	first.Release()
	if failure := second.Wait(t.Context()); failure != nil || len(second.Bytes()) != 2000 {
		t.Errorf("%v after %d bytes", failure, len(second.Bytes()))
	}
	second.Release()
}

// Files that are released or canceled before they arrive leave nothing.
func TestAbandoned(t *testing.T) {
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, body(100))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f := open(t, Options{Fetch: wire.Fetch{Concurrency: 4, Timeout: 30 * time.Second}, permit: permit, limits: defaultLimits})
	ctx, cancel := context.WithCancel(t.Context())
	var items []*Item
	for range 4 {
		items = append(items, f.Start(ctx, Named(server.URL)))
	}
	items[0].Release()
	waiting := make(chan *Item)
	go func() { waiting <- f.Start(ctx, Named(server.URL)) }() // finds no goroutine
	time.Sleep(20 * time.Millisecond)
	cancel()
	items = append(items[1:], <-waiting)
	for _, item := range items {
		if failure := item.Wait(t.Context()); failure == nil || failure.Kind != fault.Canceled {
			t.Errorf("%v", failure)
		}
		item.Release()
		item.Release() // twice does no harm
	}
}

// Do works while all goroutines are busy and memory is full.
func TestDo(t *testing.T) {
	release := make(chan struct{})
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, body(10))
	})
	dir := files(t, 1, 1000)
	f := open(t, Options{Fetch: wire.Fetch{Root: dir, Concurrency: 1, PerHost: 1}, HoldBytes: 10, permit: permit})
	busy := f.Start(t.Context(), Named(server.URL))
	item := f.Do(t.Context(), Named("0"))
	if failure := item.Wait(t.Context()); failure != nil || len(item.Bytes()) != 1000 {
		t.Errorf("%v", failure)
	}
	item.Release()
	close(release)
	if failure := busy.Wait(t.Context()); failure != nil {
		t.Error(failure)
	}
	busy.Release()
}
