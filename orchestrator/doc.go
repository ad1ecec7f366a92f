// Package orchestrator gives work to workers until all of it is done or given
// up: it plans a job, starts one worker process per device slot, lets them pull
// chunks from one queue, and puts what they return back in order.
//
//	Config ──► Plan ──► queue ──► slot 0 ── worker process ──► segments
//	                      │   └─► slot 1 ── worker process ──►    │
//	                      └─ chunks come back from lost workers   ▼
//	                                                           Output
//
// It is a library: [Run] keeps no global state, writes nothing to the terminal,
// and may be called any number of times, concurrently, in one process. What
// happens is told through Config.OnEvent.
//
//	func main() {
//		worker.Init(builtin.Kernels()) // first: workers are this program, started again
//		report, err := orchestrator.Run(ctx, orchestrator.Config{
//			Input: "in.jsonl", Output: "out.jsonl", Kernel: "echo",
//		})
//		…
//	}
//
// It never touches CUDA and knows nothing of kernels but their name: workers do.
package orchestrator
