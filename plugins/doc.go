// Package plugins is what a compute kernel is: the contract, the library that
// serves an author's kernel as a process, and the proxy through which a worker
// calls it. It is the only package that knows go-plugin.
//
// # Writing a kernel
//
// A kernel is a value with four methods and a one-line main:
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
// Build it and name the file:
//
//	go build -o upper . && gpurun run -k ./upper in.jsonl -o out.jsonl
//
// [Base] does nothing in Describe, Open and Close. A kernel with a model loads
// it in Open, which is called once in the life of the process, with the GPU
// already pinned: it is device 0 of every framework.
//
// Every record of a batch gets exactly one verdict: [Results.Unchanged],
// [Results.Line], [Results.Lines], [Results.Drop] or [Results.Fail]; or the
// kernel gives whole columns for the batch with [Results.Column], and every
// record without another verdict gets a value of each, spliced into its line by
// the worker. Columns are the fast way: numbers never become JSON in the kernel.
//
// An error returned from Process fails the whole batch: it is halved and tried
// again until the records that cause it stand alone. Return [OutOfMemory] or
// [DeviceLost] where that is the cause, so that the right thing is done. An error
// that says neither is classified by its text, where that is one of CUDA's or of
// the common frameworks' ([Classify]): a PyTorch traceback of "CUDA out of memory"
// needs no help. After one that leaves the process without a usable CUDA context
// ("an illegal memory access was encountered") the process is started afresh.
//
// Package plugins/kerneltest has the checks that every kernel must pass; in a test
// of the kernel they are one line:
//
//	kerneltest.Run(t, func() plugins.Kernel { return upper{} }, kerneltest.Options{})
//
// # How it runs
//
//	worker ── Start ──► kernel process
//	  │                    Serve(kernel)
//	  └─ proxy (a Kernel) ──gRPC over a private unix socket──► your Kernel
//
// Standard output and error of the kernel go to the worker's log; the last lines
// stand in the error if the process dies. The process ignores SIGINT, SIGTERM
// and SIGHUP: gpurun tells it when to stop, through Close.
package plugins
