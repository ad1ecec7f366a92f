//go:build browser

package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
)

// The page of gpurun serve lists a running job, leads to its page and back, and shows it
// among the past ones when it has ended.
func TestBrowserHost(t *testing.T) {
	b := openBrowser(t, 1400)
	j := newJob(t)
	serve := j.command("serve", "--listen", "127.0.0.1:0")
	stdout, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	serve.Stderr = serve.Stdout
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if found := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); found != "" {
				address <- found
				return
			}
		}
	}()
	j.start()
	select {
	case url := <-address:
		b.open(url)
	case <-time.After(patience):
		t.Fatal("gpurun serve printed no address")
	}
	const link = `document.querySelector("section[aria-label='Jobs'] a")`
	b.await("the job", link+`.textContent === "out.jsonl"`)
	eval[any](b, link+`.click()`)
	b.await("its page", `document.querySelector("h1").textContent === "out.jsonl" && `+pill+` === "running"`)
	b.await("progress", done+" > 0")
	b.press("Pause")
	b.await("the pause", pill+` === "paused"`)
	b.press("Cancel")
	b.press("Cancel the job")
	j.ends()
	b.await("the end", pill+` === "interrupted"`)
	b.await("its charts", `document.querySelectorAll(".plot canvas").length >= 2`)
	b.shot("past")
	eval[any](b, `document.querySelector(".names a").click()`)
	b.await("the past job", `document.querySelector("section[aria-label='Past jobs'] a").textContent === "out.jsonl"`)
	b.shot("host")
	b.noErrors()
}

// A MIG instance has a card of its own, and its history is asked for by its id.
func TestBrowserHostMIG(t *testing.T) {
	b := openBrowser(t, 1000)
	b.open(serveFixture(t, map[string]string{"/api/system/status": hostStatus, "/api/jobs": hostJobs, "/api/runs": hostRuns(), "/api/gpu/metrics/history": `{"success":true,"data":{"metrics":[]}}`}))
	b.await("the cards", `document.querySelectorAll(".device").length === 8 && document.querySelectorAll(".device")[7].getAttribute("aria-label") === "MIG 7:0"`)
	b.await("the history", `performance.getEntriesByType("resource").some((r) => r.name.endsWith("gpu_id=7:0"))`)
	b.noErrors()
}

// hostRuns are jobs that machines share: one with all states of shards, one that is merged,
// one with more shards than the page has room for.
func hostRuns() string {
	shard := func(i int, state cluster.State, done int64, host string) cluster.Shard {
		return cluster.Shard{Index: i, State: state, First: int64(i) * 1000, Records: 1000, Done: done, Host: host, Claims: 1}
	}
	var shards, many []cluster.Shard
	for i := range 40 {
		shards = append(shards, shard(i, cluster.Done, 1000, fmt.Sprintf("node-%02d.cluster.example", i%3)))
	}
	const long = "node-with-a-very-long-name-17.rack-4.cluster.example"
	shards = append(shards, shard(40, cluster.Running, 250, "node-00.cluster.example"), shard(41, cluster.Running, 999, "node-01.cluster.example"),
		shard(42, cluster.Running, 10, "node-02.cluster.example"), shard(43, cluster.Failed, 0, long), shard(44, cluster.Lost, 400, "node-02.cluster.example"),
		shard(45, cluster.Stopped, 700, "node-03.cluster.example"), shard(46, cluster.Pending, 0, ""), shard(47, cluster.Pending, 0, ""))
	shards[42].Copy, shards[43].Message, shards[45].Message = true, "no module named 'torch'", "stopped on request"
	for i := range 5000 {
		if i <= 3000 {
			many = append(many, shard(i, cluster.Done, 1000, "node-00.cluster.example"))
		} else {
			many = append(many, shard(i, cluster.Pending, 0, ""))
		}
	}
	node := func(host string, running []int, done, failed int) cluster.Node {
		return cluster.Node{Host: host, Running: running, Done: done, Failed: failed, Rate: 870.5 * float64(len(running))}
	}
	run := func(output string, shards []cluster.Shard, done int64, nodes ...cluster.Node) cluster.Overview {
		return cluster.Overview{
			Output: output, Folder: output + ".shards", Records: int64(len(shards)) * 1000, Done: done, Failed: 3, Shards: shards, Nodes: append([]cluster.Node{}, nodes...),
		}
	}
	runs := []cluster.Overview{
		run("/shared/embeddings-of-everything.jsonl", shards, 42_359,
			node("node-00.cluster.example", []int{40}, 14, 0), node("node-01.cluster.example", []int{41}, 13, 0), node("node-02.cluster.example", []int{42}, 13, 1),
			node("node-03.cluster.example", []int{}, 0, 0), node(long, []int{}, 0, 1)),
		run("/shared/done/", shards[:8], 8000), run("/shared/many.jsonl", many, 3_001_000),
	}
	runs[0].Rate, runs[1].Merged = 2611.5, true
	data, _ := json.Marshal(map[string]any{"runs": runs})
	return string(data)
}

// The page shows a job that processes share, from its folder: shards, machines, failures,
// and that it is merged.
func TestBrowserRuns(t *testing.T) {
	b := openBrowser(t, 1000)
	b.open(serveFixture(t, map[string]string{"/api/system/status": hostStatus, "/api/jobs": hostJobs, "/api/runs": hostRuns(), "/api/gpu/metrics/history": `{"success":true,"data":{"metrics":[]}}`}))
	const card = `document.querySelector(".run")`
	b.await("the shards", card+`.querySelectorAll(".cells i").length === 48`)
	for what, expression := range map[string]string{
		"the states":              card + `.querySelector(".cells").getAttribute("aria-label") === "48 shards: 40 done, 2 pending, 1 stopped, 3 running, 1 lost, 1 failed"`,
		"a shard's machine":       card + `.querySelectorAll(".cells i")[40].title === "shard 40: running on node-00.cluster.example, 25.0%"`,
		"how far a shard is":      `getComputedStyle(` + card + `.querySelectorAll(".cells i")[40]).getPropertyValue("--part") === "25%"`,
		"the failure":             card + `.querySelector(".hints").textContent.includes("shard 43 failed on node-with-a-very-long-name-17.rack-4.cluster.example: no module named 'torch'")`,
		"what a machine computes": `[...` + card + `.querySelectorAll("tbody tr")].some((row) => row.textContent === "node-02.cluster.exampleshard 42 (1.0%, a copy)871/s131")`,
		"the rate and the rest":   card + `.querySelector(".progress-line").textContent.includes("42,359 of 48,000 records · 3 failed · 2,612/s · about 2 s left")`,
		"the merged run":          `document.querySelectorAll(".run .pill")[1].textContent === "merged"`,
		"few cells of many":       `document.querySelectorAll(".run")[2].querySelectorAll(".cells i").length <= 400`,
	} {
		b.await(what, expression)
	}
	b.shot("runs")
	b.noErrors()
}

// The page lists the latest of many past jobs, and more of them on request.
func TestBrowserManyPastJobs(t *testing.T) {
	b := openBrowser(t, 1000)
	type job = map[string]any
	jobs := []job{}
	for i := range 454 {
		jobs = append(jobs, job{
			"job":   job{"id": fmt.Sprint(i), "output": fmt.Sprintf("/data/out-%d.jsonl", i), "kernel": "echo", "started": "2026-01-01T00:00:00Z"},
			"phase": "ended", "total": 10, "done": job{"records": 10, "failed": 0},
		})
	}
	data, err := json.Marshal(job{"jobs": jobs})
	if err != nil {
		t.Fatal(err)
	}
	b.open(serveFixture(t, map[string]string{"/api/system/status": hostStatus, "/api/jobs": string(data), "/api/runs": `{"runs":[]}`, "/api/gpu/metrics/history": `{"success":true,"data":{"metrics":[]}}`}))
	const rows = `document.querySelectorAll("section[aria-label='Past jobs'] tbody tr")`
	b.await("the latest", rows+`.length === 20 && `+rows+`[0].textContent.includes("out-0.jsonl")`)
	b.await("how many there are", `document.querySelector("section[aria-label='Past jobs'] h2").textContent === "Past jobs · 454"`)
	b.press("Show 100 more")
	b.await("more of them", rows+`.length === 120`)
	for range 4 {
		eval[any](b, `document.querySelector("section[aria-label='Past jobs'] button").click()`)
	}
	b.await("all of them", rows+`.length === 454 && document.querySelector("section[aria-label='Past jobs'] button").hidden`)
	b.noErrors()
}
