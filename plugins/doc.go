// Package plugins defines the interface between gpurun and the kernels that compute
// records: the [Kernel] contract, and the library that serves an author's kernel as a
// process. Package plugins/process starts such a process and calls the kernel in it, as a
// worker does; both ends share package plugins/protocol.
//
// # Writing a kernel
//
// A kernel is a value with four methods: Describe, Open, Process and Close. Embedding
// [Base] provides all of them except Process, and main is a single line:
//
//	type upper struct{ plugins.Base }
//
//	func (upper) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
//		for i := range batch.Len() {
//			results.Line(i, bytes.ToUpper(batch.Record(i)))
//		}
//		return nil
//	}
//
//	func main() { plugins.Serve(upper{}) }
//
// Build the program and pass it to gpurun:
//
//	go build -o upper .
//	gpurun run -k ./upper in.jsonl -o out.jsonl
//
// # Loading a model
//
// A kernel that needs a model loads it in Open. Each worker starts one kernel process and
// calls Open in it once, before the first batch. The process sees only the worker's GPU,
// so that GPU is device 0 to every framework.
//
// Describe returns an [Info]: the preferred batch size, whether the kernel needs a GPU,
// and so on. gpurun also calls it when planning a job, without a device, so it must be
// cheap. Both methods get the user's configuration; read it with [Config.Decode].
//
// # Returning results
//
// Process must give every record of a batch exactly one verdict:
//
//   - [Results.Unchanged] writes the record as it is.
//   - [Results.Line] and [Results.Lines] replace it with one or more lines of JSON.
//   - [Results.Drop] omits it from the output.
//   - [Results.Fail] rejects it: it stays in the output, marked as failed.
//
// Alternatively, [Results.Column] returns typed values for the whole batch. Every record
// without a verdict gets its value of each column as a new member, which the worker
// splices into the line. Columns are the fastest way to return results, because the
// kernel never encodes numbers as JSON.
//
// # Reporting errors
//
// To reject a single record, call [Results.Fail]. An error returned from Process fails
// the whole batch: gpurun bisects it and tries the parts again until it has isolated the
// records that cause the error.
//
// Wrap an error with [OutOfMemory] or [DeviceLost] if that is its cause: gpurun then
// makes the batch smaller, or moves the records to another device. gpurun recognizes the
// messages of CUDA and the common frameworks by itself (see package plugins/symptom), so a PyTorch
// "CUDA out of memory" traceback needs no wrapping. After an error that destroys the
// process's CUDA context, such as "an illegal memory access was encountered", gpurun
// restarts the process.
//
// # Testing a kernel
//
// Package plugins/kerneltest checks what every kernel must do. In a test, that is one
// line:
//
//	kerneltest.Run(t, func() plugins.Kernel { return upper{} }, kerneltest.Options{})
//
// # How a kernel runs
//
//	worker ── Start ──► kernel process
//	  │                    Serve(kernel)
//	  └─ process.Process (a Kernel) ──gRPC over a private unix socket──► your Kernel
//
// The kernel's standard output and standard error go to the worker's log, and their last
// lines into the error if the process dies. The process ignores SIGINT, SIGTERM and
// SIGHUP: gpurun stops it by calling Close.
package plugins
