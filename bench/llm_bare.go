package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// bareVariable makes this program a bare client of a model server; its value is the
// settings.
const bareVariable = "GPURUN_BENCH_BARE"

type bareSettings struct {
	URL, Input, Output string
	InFlight           int
}

// runBare sends a request for each line of the input, some at a time, and writes the answers
// in order: what a careful programmer would write without gpurun.
func runBare(settings string) error {
	var s bareSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return err
	}
	data, err := os.ReadFile(s.Input)
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	answers := make([]chan []byte, len(lines))
	for i := range answers {
		answers[i] = make(chan []byte, 1)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = s.InFlight
	client := &bareClient{http: http.Client{Transport: transport}, url: s.URL + "/chat/completions"}
	next := make(chan int)
	var group sync.WaitGroup
	var once sync.Once
	var failure error
	for range s.InFlight {
		group.Go(func() {
			for i := range next {
				answer, err := client.ask(lines[i])
				if err != nil {
					once.Do(func() { failure = err })
				}
				answers[i] <- answer
			}
		})
	}
	go func() {
		for i := range lines {
			next <- i
		}
		close(next)
	}()
	out, err := os.Create(s.Output)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for i := range answers {
		_, _ = w.Write(append(<-answers[i], '\n'))
	}
	group.Wait()
	if failure != nil {
		return failure
	}
	return w.Flush()
}

type bareClient struct {
	http http.Client
	url  string
}

func (c *bareClient) ask(line []byte) ([]byte, error) {
	var record map[string]any
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []map[string]any{{"role": "user", "content": record["text"]}}})
	if err != nil {
		return nil, err
	}
	response, err := c.http.Post(c.url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d, %w", response.StatusCode, err)
	}
	var answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil || len(answer.Choices) == 0 {
		return nil, fmt.Errorf("answer %s: %w", data, err)
	}
	record["response"] = answer.Choices[0].Message.Content
	return json.Marshal(record)
}
