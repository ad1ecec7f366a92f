// Package python is the kernel that hosts a Python file:
//
//	def setup(ctx): …                  # once; ctx.device is "cuda:0" or "cpu"
//	def process(batch): return {"embedding": model.encode(batch["text"])}
//
//	gpurun run -k embed.py in.jsonl -o out.jsonl
//
// It runs in two processes. The kernel process is gpurun: it extracts the fields
// that the kernel reads from the records and encodes the columns that come back,
// so that Python neither decodes nor encodes JSON. The other process is the user's
// interpreter with the modules in runner/, which have no dependencies.
//
//	worker ──records──► kernel process ──fields──► python
//	                        fields/       shared     runner/*.py ──► embed.py
//	       ◄─columns──      answer.go  ◄──memory──
//
// They share anonymous memory (memory.go) and exchange small messages over a
// socket pair; runner/wire.py describes the protocol. Fields are learned: once the
// kernel has asked for a field, every later batch includes it, so only the first
// batch waits for a round trip.
//
// prepare runs ahead in threads of the interpreter, or, if the file defines
// setup_prepare, in more interpreters, which read the same shared memory (pool.go).
// pace.go decides how many batches are prepared at a time.
//
// While Python computes a batch, the fields of the next one are prefetched and the
// results of the previous one are decoded here: see Info.InFlight.
package python
