package fetch

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick are limits for tests that do not wait for them, impatient those for tests that do.
var (
	quick = limits{
		connect: time.Minute, firstByte: time.Minute, idle: time.Minute,
		backOff: time.Millisecond, mostBackOff: 4 * time.Millisecond,
	}
	impatient = limits{
		connect: time.Minute, firstByte: 100 * time.Millisecond, idle: 100 * time.Millisecond,
		backOff: time.Millisecond, mostBackOff: 4 * time.Millisecond,
	}
)

// open returns a Fetcher that is closed with the test. All of its memory must have been
// released by then.
func open(t testing.TB, o Options) *Fetcher {
	t.Helper()
	setDefault(&o.limits, quick)
	memory := &memories{}
	o.Allocate = memory.allocate
	f := New(o)
	t.Cleanup(func() {
		f.Close()
		if n := memory.inUse.Load(); n != 0 {
			t.Errorf("%d files are still in memory", n)
		}
		if f.room.used != 0 {
			t.Errorf("%d bytes are still counted", f.room.used)
		}
	})
	return f
}

// memories counts the memory that is in use, and fills what is freed.
type memories struct{ inUse atomic.Int64 }

type memory struct {
	of    *memories
	data  []byte
	freed atomic.Bool
}

func (m *memories) allocate(size int) Memory {
	m.inUse.Add(1)
	return &memory{of: m, data: make([]byte, 2*size)}
}

func (m *memory) Bytes() []byte { return m.data }

func (m *memory) Free() {
	if m.freed.Swap(true) {
		panic("memory is freed twice")
	}
	for i := range m.data {
		m.data[i] = 'x'
	}
	m.of.inUse.Add(-1)
}

// get fetches a value and returns what it is, or the failure's message.
func get(t testing.TB, f *Fetcher, value string) string {
	t.Helper()
	item := f.Start(t.Context(), Named(value))
	defer item.Release()
	failure := item.Wait(t.Context())
	if failure == nil {
		return string(item.Bytes())
	}
	if failure.Kind != fault.Fetch {
		t.Errorf("%.60q fails with kind %s", value, failure.Kind)
	}
	return "! " + failure.Message
}

// serve starts a server. Its URL is permitted and no other.
func serve(t testing.TB, handler http.HandlerFunc) (*httptest.Server, func(netip.AddrPort) bool) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return server, func(to netip.AddrPort) bool { return to == at }
}

// calls counts the requests for each path.
type calls struct {
	mu     sync.Mutex
	counts map[string]int
}

// count returns how many requests there were before this one.
func (c *calls) count(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[path]++
	return c.counts[path] - 1
}

func (c *calls) of(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[path]
}

func body(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	return string(text)
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// serveTLS starts a server whose certificate is not trusted.
func serveTLS(t *testing.T) (*httptest.Server, func(netip.AddrPort) bool) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, func(netip.AddrPort) bool { return true }
}
