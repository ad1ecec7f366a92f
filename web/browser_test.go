//go:build browser

package web_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience limits how long a test waits for something to appear in the page.
const patience = time.Minute

// browser is a tab of a real browser. Errors in its console fail the test.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

// openBrowser starts a browser with a window of the given width.
func openBrowser(t *testing.T, width int64) *browser {
	t.Helper()
	path := chromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	b := &browser{t: t, ctx: ctx}
	b.run(chromedp.EmulateViewport(width, 900))
	console := chromedp.Console(ctx)
	go b.listen(console)
	return b
}

// chromium returns the path of the browser, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: no Chromium: the page is not tested in a browser (make browser-test installs it)")
	return ""
}

// listen collects what the page reports as an error.
func (b *browser) listen(console iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range console {
		if err != nil {
			return // the tab is closed
		}
		if m.Type == chromedp.ConsoleError || m.IsException() {
			b.mu.Lock()
			b.errors = append(b.errors, m.Text+" "+m.URL)
			b.mu.Unlock()
		}
	}
}

// noErrors fails the test if the console has errors other than those that contain one of
// the expected texts.
func (b *browser) noErrors(expected ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, text := range b.errors {
		for _, known := range expected {
			if strings.Contains(text, known) {
				continue next
			}
		}
		b.t.Errorf("console: %s", text)
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// await waits until an expression is true.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if eval[bool](b, "(() => { try { return !!("+expression+") } catch { return false } })()") {
			return
		}
		if time.Now().After(deadline) {
			b.shot("failed")
			b.t.Fatalf("not within %v: %s (%s); the page says: %s", patience, what, expression, eval[string](b, "document.body.innerText.slice(0, 2000)"))
		}
	}
}

// shot saves a picture of the whole page in $GPURUN_SHOTS, for people.
func (b *browser) shot(name string) {
	folder := os.Getenv("GPURUN_SHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Logf("screenshot: %v", err)
		return
	}
	name = fmt.Sprintf("%s-%s.png", strings.ReplaceAll(b.t.Name(), "/", "-"), name)
	if err := os.WriteFile(filepath.Join(folder, name), picture, 0o666); err != nil {
		b.t.Log(err)
	}
}
