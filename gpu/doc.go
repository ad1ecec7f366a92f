// Package gpu discovers the devices a job can run on, pins workers to them and
// monitors them. It is the only package that uses NVML.
//
// # Selecting devices
//
// [ParseSelection] reads what a user writes: all, 0,2, 0-3, GPU-…, cpu:4. [Select] returns
// the devices that match, as an [Inventory] with notes for the user. [Group] gives each
// worker its devices, and [PinEnv] returns the variables that let a process see no others.
//
//	"0,2" ──────► ParseSelection ─┐
//	NVML ──────► machine ──► visible ──► pick ──► Inventory ──► Group ──► PinEnv
//	             (PCI order)    ▲                 []Device               CUDA_VISIBLE_DEVICES=…
//	                            └─ inherited CUDA_VISIBLE_DEVICES
//
// # Watching devices
//
// While a job runs, a [Monitor] samples its devices and sets the pace of each,
// [WatchXids] reports the driver's critical errors, and a [Registry] counts worker
// slots.
//
//	NVML ──► sampler ──► Sample ──► ladders (heat, memory) ──► State ──► pace
//	         (a thread      └─► history, trend, totals           └─► events
//	         per device)
//
// A pace of 1 is full speed, and 0 pauses the device after the current batch. [Look] is a
// snapshot of every GPU, for programs that run no job.
//
// # Rules
//
// The package follows three rules:
//
//   - Never run on the CPU silently. Discover returns CPU devices only if there is no
//     NVIDIA driver, and says so in a Note. A driver that fails, or shows no GPU, is a
//     fault.NoDevice.
//   - An inherited CUDA_VISIBLE_DEVICES is a boundary set by a scheduler, a container
//     or a user. Its entries are passed on unchanged, and no device outside it can be
//     selected. As in CUDA, the selection 0,2 then counts positions among the visible
//     devices: with CUDA_VISIBLE_DEVICES=4,5,6 it selects the tokens 4 and 6.
//   - A hung driver must not hang the job, and one hung GPU must not cost the job the
//     others. All NVML calls of an inventory run on one dedicated thread; if a GPU
//     hangs, each remaining GPU gets its own. They are abandoned after Options.Timeout.
//     WatchXids uses another thread, and a Monitor one per device. A device that was
//     never monitored may run at full speed; one that can no longer be monitored never
//     becomes faster.
//
// The package does not use CUDA, starts no process and sets no variable: it returns
// what to set. Each MIG instance is a device; a GPU in MIG mode is the sum of its
// instances. Package lease records who holds which. Package gputest simulates a machine
// for tests.
package gpu
