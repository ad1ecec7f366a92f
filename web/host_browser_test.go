package web_test

import (
	"bufio"
	"regexp"
	"testing"
	"time"
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

// hostRuns is a job that two machines share; one has failed.
const hostRuns = `{"runs":[{"output":"/shared/out.jsonl","folder":"/shared/out.jsonl.shards","records":3000000,"done":1250000,"failed":3,
"records_per_second":81250.5,"merged":false,"shards":[
{"shard":0,"state":"done","first":0,"records":1000000,"done":1000000,"failed":3,"records_per_second":70000,"host":"node-17.cluster.example","claims":1},
{"shard":1,"state":"running","first":1000000,"records":1000000,"done":250000,"failed":0,"records_per_second":81250.5,"host":"node-17.cluster.example","claims":1},
{"shard":2,"state":"failed","first":2000000,"records":1000000,"done":0,"failed":0,"records_per_second":0,"host":"node-18.cluster.example","claims":2,"message":"no module named torch"}],
"nodes":[{"host":"node-17.cluster.example","running":[1],"done":1,"failed":0,"records_per_second":81250.5},{"host":"node-18.cluster.example","running":[],"done":0,"failed":1,"records_per_second":0}]}]}`
