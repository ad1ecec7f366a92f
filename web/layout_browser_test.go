//go:build browser

package web_test

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

//go:embed testdata/accessible.js
var accessible string

//go:embed testdata/host.json
var hostStatus string

//go:embed testdata/host_jobs.json
var hostJobs string

// fixtures are the jobs whose pages must be readable.
func fixtures() map[string]fixture {
	var many []orchestrator.ChunkDone
	for i := range 40 {
		many = append(many, failing(int64(100+i), 250, fmt.Sprintf("ValueError: field %c is empty after normalization of %s", 'a'+i%26, strings.Repeat("long_name_", 1+i/3))))
	}
	few := []orchestrator.ChunkDone{failing(18_231, 12, "ValueError: text 18231 has no tokens after normalization; the tokenizer returned an empty sequence"), failing(901_233, 1, "KeyError: 'text'")}
	return map[string]fixture{
		"eight GPUs":   {gpus: 8, workers: 4, hours: 3, total: 12_400_000, failures: few, name: "wikipedia-embeddings.jsonl"},
		"many failed":  {gpus: 2, workers: 1, hours: 5, total: 1_000_000, failures: many},
		"none failed":  {gpus: 1, workers: 1, hours: 1, total: 1_000_000, figures: map[string]float64{"tokens": 51_200}},
		"only CPUs":    {workers: 32, hours: 1, total: 50_000_000, name: "out.jsonl"},
		"a stream":     {gpus: 1, workers: 2, hours: 1, total: -1, name: "out.jsonl"},
		"not started":  {name: "out.jsonl"},
		"finished job": {gpus: 4, workers: 1, hours: 1, total: 1_000_000, failures: few, end: &orchestrator.Report{}},
	}
}

// TestBrowserLayout: at every width and in both themes nothing overflows, all text has
// enough contrast, and every control has a name and a size that a finger can hit.
func TestBrowserLayout(t *testing.T) {
	all := os.Getenv("GPURUN_BROWSER") == "all"
	browsers := map[int64]*browser{400: openBrowser(t, 400), 1400: openBrowser(t, 1400)}
	check := func(t *testing.T, address string, width int64, theme string) {
		b := browsers[width]
		b.t = t
		b.open(address)
		eval[any](b, fmt.Sprintf(`localStorage.setItem("gpurun-theme", %q)`, theme))
		b.open(address)
		b.await("the page", `document.querySelector("main section")`)
		b.await("its data", `document.title !== "gpurun" && [...document.querySelectorAll(".plot")].every((p) => !p.checkVisibility() || p.querySelector("canvas"))`)
		eval[any](b, `document.querySelectorAll("details").forEach((d, i) => { d.open = i === 0 })`)
		if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > width {
			t.Errorf("the page is %d pixels wide", wide)
		}
		for _, problem := range eval[[]string](b, accessible) {
			t.Error(problem)
		}
		b.shot(fmt.Sprint(theme, width))
		b.noErrors()
		b.open("about:blank") // the fixture ends
	}
	for name, f := range fixtures() {
		if !all && name != "eight GPUs" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			address := f.serve(t)
			for width := range browsers {
				check(t, address, width, "light")
				check(t, address, width, "dark")
			}
		})
	}
	t.Run("host", func(t *testing.T) {
		answers := map[string]string{"/api/system/status": hostStatus, "/api/jobs": hostJobs, "/api/runs": hostRuns(), "/api/gpu/metrics/history": `{"success":true,"data":{"metrics":[]}}`}
		address := serveFixture(t, answers)
		check(t, address, 400, "dark")
		check(t, address, 1400, "light")
	})
}

// TestBrowserDevices: a GPU's card tells what slows it, and no worker computes on a paused GPU. A
// worker that waits for a server stands out.
func TestBrowserDevices(t *testing.T) {
	b := openBrowser(t, 1400)
	b.open(fixtures()["eight GPUs"].serve(t))
	card := func(device string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("article.device")].find((card) => card.ariaLabel === %q)`, device)
	}
	b.await("the power limit", card("GPU 6")+`?.querySelector(".problem").textContent === "lowers its own clocks: power limit"`)
	b.await("the pause", card("GPU 4")+`?.querySelector(".pill").textContent === "critical · paused"`)
	if phases := eval[[]string](b, `[...`+card("GPU 4")+`.querySelectorAll(".phase")].map((p) => p.textContent)`); strings.Join(phases, " ") != "paused paused paused paused" {
		t.Errorf("the workers of a paused GPU are %q", phases)
	}
	if n := eval[int](b, `[...document.querySelectorAll(".events li")].filter((e) => e.textContent.includes("paused at 88")).length`); n != 1 {
		t.Errorf("the timeline tells %d times that GPU 4 is paused", n)
	}
	colors := eval[[]string](b, `["held", "waiting"].map((phase) => {
		const node = document.querySelector(".workers .phase");
		node.className = "phase " + phase;
		return getComputedStyle(node).color;
	})`)
	if colors[0] == colors[1] {
		t.Errorf("a worker that waits for a server has the color of one that waits for work, %s", colors[0])
	}
	b.noErrors()
}
