// Package openai is the kernel that sends each record to a server with OpenAI's API: a
// model server such as vLLM, or a remote service.
//
//	gpurun run -k openai:http://127.0.0.1:8000/v1 requests.jsonl -o results.jsonl
//
// Records are either lines of an OpenAI batch file, with custom_id, method, url and body,
// or records of any shape from which templates in the configuration make a request:
//
//	{"model":"m","prompt":"Summarize: {text}","output":"summary"}
//
// The kernel is concurrent ([plugins.Concurrent]): gpurun keeps Options.Concurrency records
// in flight, and fewer while the kernel reports that the server is overloaded. It never repeats a request itself: it answers [plugins.Retry], and the
// worker decides whether and when to try again.
package openai
