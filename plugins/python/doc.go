// Package python is the kernel that hosts a file of Python:
//
//	def setup(ctx): …                  # once; ctx.device is "cuda:0" or "cpu"
//	def process(batch): return {"embedding": model.encode(batch["text"])}
//
//	gpurun run -k embed.py in.jsonl -o out.jsonl
//
// Two processes belong to it. This one, the kernel process, is gpurun: it takes
// the fields that the kernel looks at from the records and writes the columns that
// come back, so that Python decodes and encodes no JSON. The other is the user's
// interpreter with the modules of the folder runner, which need nothing installed.
//
//	worker ──records──► kernel process ──fields──► python
//	                        extract.go    shared     runner/*.py ──► embed.py
//	       ◄─columns──      answer.go  ◄──memory──
//
// They share memory that no file system holds (memory_linux.go); beside it goes a
// socket pair with small messages, which runner/wire.py describes. Fields are
// learned: what the kernel asks for once comes along with every batch from then
// on, so that the first batch alone waits for it.
//
// While Python computes a batch, the next one's fields lie ready for it and the
// last one's results are being read here: see Info.InFlight.
package python
