// Package orchestrator runs a job: a kernel over the records of a file, on every device.
// It plans the job, starts one worker process per device slot, lets the workers pull chunks
// from one queue, and writes their results in input order.
//
//	Config ──► Plan ──► queue ──► slot 0 ── worker process ──► segments
//	                      │   └─► slot 1 ── worker process ──►    │
//	                      └─ chunks come back from lost workers   ▼
//	                                                           Output
//
// The package never touches CUDA and knows kernels only by name: the workers run them.
//
// # Running a job
//
// A job needs an input, an output and a kernel. Everything else in [Config] has a default.
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
// A program that cannot call worker.Init names a gpurun binary in Config.WorkerBinary.
// [Run] keeps no global state and writes nothing to the terminal. It may be called any
// number of times in one process, also concurrently.
//
// [MakePlan] shows what a job would do: its input, its chunks, its devices.
//
// # Records from a program
//
// [Stream] runs a job without files: records come from an iterator, and results go to one.
//
//	for result, err := range orchestrator.Stream(ctx, config, records) {
//		if err != nil {
//			return err // the job has ended
//		}
//		if result.Failure != nil {
//			… // result.Failed is the record
//		}
//		for _, record := range result.Records {
//			…
//		}
//	}
//
// # What happened to the records
//
// [Report] counts the records: In = Succeeded + Failed + Dropped + Pending, however the job
// ends. A record that fails is not an error of the job. It stays in its place in the
// output, marked with the reason, or goes to Output.Errors. Report.Causes lists the
// reasons, and failures.jsonl in the job folder has the details. [Retry] computes the
// failed records of a finished job again.
//
// # Errors, stopping and resuming
//
// An error is a [*Fault], which errors.As finds. Its Kind tells a program how to react. Its
// Code identifies what a user can do about it. Messages name no flags, because only the
// program knows its own.
//
// Canceling the context stops the job at each worker's next batch boundary. Closing
// Config.Abort ends it at once. The same call of Run later resumes the job: it finds the
// job folder next to the output and computes only what is missing. Report.Resume says
// whether that will work. A job that reads from or writes to a stream cannot be resumed.
//
// # Following and controlling a job
//
// Config.Display.OnEvent receives an [Event] for each thing that happens: [Planned],
// [WorkerReady], [Progress], [WorkerLost] and others. A [Control] pauses and
// resumes a running job from other goroutines. [Inspect] and [Verify] read the job folder
// of a job that another process runs, or that has ended.
//
// # Sharing GPUs
//
// Without Config.Devices.Claim, a job uses the selected GPUs as if it had them to itself.
// Package gpu/lease/claim implements Claim with leases, so that jobs of one host wait for
// each other.
package orchestrator
