// Package orchestrator runs a job: it plans the job, starts one worker process per
// device slot, lets the workers pull chunks from one queue, and writes their results in
// input order.
//
//	Config ──► Plan ──► queue ──► slot 0 ── worker process ──► segments
//	                      │   └─► slot 1 ── worker process ──►    │
//	                      └─ chunks come back from lost workers   ▼
//	                                                           Output
//
// It is a library: [Run] keeps no global state, writes nothing to the terminal, and may
// be called any number of times, also concurrently, in one process. Progress is
// reported through Config.Display.OnEvent.
//
//	func main() {
//		worker.Init(builtin.Kernels()) // first: workers are this program, started again
//		report, err := orchestrator.Run(ctx, orchestrator.Config{
//			Input:  orchestrator.Input{Path: "in.jsonl"},
//			Output: orchestrator.Output{Path: "out.jsonl"},
//			Kernel: orchestrator.Kernel{Name: "echo"},
//		})
//		…
//	}
//
// The package never touches CUDA and knows kernels only by name: the workers run them.
package orchestrator
