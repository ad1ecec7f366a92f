package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// fetch measures --fetch: of small local files against a loop that only reads them, and of
// a server that takes its time against what its delay allows.
func (b *bench) fetch() error {
	if err := b.fetchFiles(); err != nil {
		return err
	}
	return b.fetchWeb()
}

// fetchFiles fetches 20,000 files of 4 KB. The loop reads one after the other; gpurun uses
// all cores, for more than reading.
func (b *bench) fetchFiles() error {
	n := b.size(20_000, 500)
	input, names, err := b.makeFiles(n)
	if err != nil {
		return err
	}
	defer b.remove("files", "files.jsonl")
	var shares []float64
	for range b.rounds {
		started := time.Now()
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				return err
			}
		}
		loop := float64(n) / time.Since(started).Seconds()
		events, err := b.eventsOf(input, "-k", b.sleep, "--gpus", "cpu:1", "--fetch", "file=path")
		if err != nil {
			return err
		}
		shares = append(shares, 100*events.rate/loop)
	}
	b.add("--fetch of 20,000 files of 4 KB, of the rate of a loop that reads them", "%", shares, ">=", 90, nil)
	return nil
}

// makeFiles writes n files, 100 in a folder, and records that name them.
func (b *bench) makeFiles(n int) (input string, names []string, err error) {
	input = filepath.Join(b.dir, "files.jsonl")
	var lines bytes.Buffer
	data := bytes.Repeat([]byte("data"), 1000)
	for i := range n {
		name := fmt.Sprintf("files/%d/%d.png", i/100, i)
		path := filepath.Join(b.dir, name)
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return "", nil, err
			}
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			return "", nil, err
		}
		names = append(names, path)
		fmt.Fprintf(&lines, "{\"id\":%d,\"path\":%q}\n", i, name)
	}
	return input, names, os.WriteFile(input, lines.Bytes(), 0o666)
}

// fetchWeb fetches from a server that answers each request after 50 ms.
func (b *bench) fetchWeb() error {
	const concurrency, latency = 64, 50 * time.Millisecond
	n := b.size(12_800, 640)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	data := bytes.Repeat([]byte("data"), 1000)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(latency)
		_, _ = w.Write(data)
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	input, err := b.makeURLs(n, "http://"+listener.Addr().String())
	if err != nil {
		return err
	}
	defer b.remove("urls.jsonl")
	ideal := concurrency / latency.Seconds()
	var shares []float64
	for range min(b.rounds, 3) {
		events, err := b.eventsOf(input, "-k", b.sleep, "--gpus", "cpu:1", "--fetch", "file=url", "--fetch-allow-private",
			"--fetch-concurrency", fmt.Sprint(concurrency), "--fetch-per-host", fmt.Sprint(concurrency))
		if err != nil {
			return err
		}
		shares = append(shares, 100*events.rate/ideal)
	}
	b.add("--fetch from a server with 50 ms latency, 64 at a time, of concurrency / latency", "%", shares, ">=", 90, nil)
	return nil
}

func (b *bench) makeURLs(n int, server string) (string, error) {
	path := filepath.Join(b.dir, "urls.jsonl")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for i := range n {
		fmt.Fprintf(out, "{\"id\":%d,\"url\":\"%s/%d?signature=x\"}\n", i, server, i)
	}
	return path, out.Flush()
}
