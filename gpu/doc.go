// Package gpu knows which devices a job can run on, and how a worker is pinned
// to one. It is the only package that knows NVML.
//
//	--gpus 0,2 ──► ParseSelection ─┐
//	NVML ──────► machine ──► visible ──► pick ──► Inventory ──► Group ──► PinEnv
//	             (PCI order)    ▲                 []Device               CUDA_VISIBLE_DEVICES=…
//	                            └─ inherited CUDA_VISIBLE_DEVICES
//
// While a job runs, a [Monitor] samples its devices and says how fast each may go,
// [WatchXids] tells of the driver's critical errors, and a [Registry] counts the
// slots.
//
//	NVML ──► sampler ──► Sample ──► ladders (heat, memory) ──► State ──► pace
//	         (a thread      └─► history, trend, totals           └─► events
//	         per device)
//
// Three rules stand behind everything here:
//
//   - Never a silent CPU run. CPU devices come from Discover only where there is
//     no NVIDIA driver, with a Note that says so. A driver that is there and
//     fails, or shows no GPU, is a fault.NoDevice.
//   - An inherited CUDA_VISIBLE_DEVICES is a border somebody drew (a scheduler, a
//     container, a person). Its entries are handed on unchanged, and nothing
//     outside of it can be selected. Like CUDA itself, `--gpus 0,2` then counts
//     positions among the visible ones: with CUDA_VISIBLE_DEVICES=4,5,6 it is
//     the tokens 4 and 6.
//   - A hung driver must not hang the job, and one hung GPU must not cost the job
//     the others. All NVML calls of one inventory run on one thread of their own,
//     until a GPU hangs: then each of the remaining ones has its own. They are given
//     up on after Options.Timeout. Calls of WatchXids run on another thread, and
//     those of a Monitor on one per device. A
//     device that was never seen may go at full speed; one that is no longer seen
//     never becomes faster than it was.
//
// The package does not touch CUDA, starts no process and sets no variable: it
// says what to set. A MIG instance is a device of its own; a GPU in MIG mode is
// the sum of its instances. Look is a glance at every GPU at one moment; who holds one
// is package lease's.
package gpu
