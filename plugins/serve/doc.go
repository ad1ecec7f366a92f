// Package serve is the kernel that starts a model server with OpenAI's API on its device and
// sends each record to it.
//
//	gpurun run -k 'serve:vllm serve MODEL --uds {socket}' requests.jsonl -o results.jsonl
//
// The shell runs the command. {socket} stands for the path of a unix socket, {port} for a
// free port on the loopback interface (dial.go), and {gpus} for the number of the worker's GPUs. The
// server inherits the worker's environment, in which only those GPUs are visible. Its output
// goes to the worker's log.
//
// Open waits until the server is ready (ready.go). Requests and answers are as in package
// openai. If the server exits, or stops answering (watch.go), the records that it has fail
// with a crash: the worker then starts this kernel again, and with it a new server, sends the
// records without an answer again, and finds out whether one of them ends the server.
//
// Everything that the server starts ends with it, also what has left its process group: this
// process adopts it.
package serve
