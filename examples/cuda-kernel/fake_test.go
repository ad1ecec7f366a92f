package main

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins/minhash"
)

// fakeDriver is an in-memory GPU. It runs the work of a stream as late as possible, when
// the caller waits for it, which exposes code that changes memory too early. A call on a
// thread without the context, or with an invalid handle, returns the error that CUDA
// would return.
type fakeDriver struct {
	mu       sync.Mutex
	memory   uintptr              // free bytes
	failures map[string]cuda.Code // injected results, by call

	next    uintptr
	current map[int]uintptr // current context by thread
	context uintptr
	device  map[cuda.Pointer][]byte
	host    map[unsafe.Pointer][]byte
	modules map[uintptr]bool
	streams map[uintptr][]func()
	events  map[uintptr]func()
	texts   map[cuda.Code]*byte
}

const invalidContext, invalidValue cuda.Code = 201, 1

func newFakeDriver() *fakeDriver {
	return &fakeDriver{
		memory: 1 << 30, failures: map[string]cuda.Code{}, next: 0x1000, current: map[int]uintptr{},
		device: map[cuda.Pointer][]byte{}, host: map[unsafe.Pointer][]byte{}, modules: map[uintptr]bool{},
		streams: map[uintptr][]func(){}, events: map[uintptr]func(){}, texts: map[cuda.Code]*byte{},
	}
}

// call wraps every call that needs the context.
func (f *fakeDriver) call(name string, body func() cuda.Code) cuda.Code {
	f.mu.Lock()
	defer f.mu.Unlock()
	if code := f.failures[name]; code != 0 {
		return code
	}
	if f.context == 0 || f.current[unix.Gettid()] != f.context {
		return invalidContext
	}
	return body()
}

func (f *fakeDriver) handle() uintptr { f.next++; return f.next }

// run executes the work of a stream.
func (f *fakeDriver) run(stream uintptr) {
	for len(f.streams[stream]) > 0 {
		work := f.streams[stream][0]
		f.streams[stream] = f.streams[stream][1:]
		work()
	}
}

// at returns the memory at a pointer, which may point into the middle of a block.
func (f *fakeDriver) at(pointer cuda.Pointer, bytes uintptr) []byte {
	for start, memory := range f.device {
		if offset := uintptr(pointer - start); pointer >= start && offset+bytes <= uintptr(len(memory)) {
			return memory[offset : offset+bytes]
		}
	}
	return nil
}

// leaks lists everything that has not been freed.
func (f *fakeDriver) leaks() string {
	return fmt.Sprintf("%d device, %d host, %d modules, %d streams, %d events, context %d",
		len(f.device), len(f.host), len(f.modules), len(f.streams), len(f.events), f.context)
}

const noLeaks = "0 device, 0 host, 0 modules, 0 streams, 0 events, context 0"

func (f *fakeDriver) load() (*cuda.Driver, error) {
	d := &cuda.Driver{
		GetErrorName:   func(code cuda.Code, name **byte) cuda.Code { return f.text(code, name, "CUDA_ERROR_") },
		GetErrorString: func(code cuda.Code, text **byte) cuda.Code { return f.text(code, text, "error ") },
		Init:           func(uint32) cuda.Code { return f.failures["cuInit"] },
		DeviceGet:      func(device *int32, ordinal int32) cuda.Code { *device = 7; return f.failures["cuDeviceGet"] },
		DeviceGetName: func(name *byte, length int32, device int32) cuda.Code {
			copy(unsafe.Slice(name, length), "Fake GPU\x00")
			return 0
		},
		DevicePrimaryCtxRetain: func(context *uintptr, device int32) cuda.Code {
			f.context = f.handle()
			*context = f.context
			return f.failures["cuDevicePrimaryCtxRetain"]
		},
		DevicePrimaryCtxRelease: func(int32) cuda.Code { f.context = 0; return 0 },
		CtxSetCurrent: func(context uintptr) cuda.Code {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.current[unix.Gettid()] = context
			return f.failures["cuCtxSetCurrent"]
		},
	}
	f.loadModules(d)
	f.loadMemory(d)
	f.loadStreams(d)
	return d, nil
}

// text returns the names of the errors that the tests use, and fails for others.
func (f *fakeDriver) text(code cuda.Code, text **byte, prefix string) cuda.Code {
	names := map[cuda.Code]string{
		2: "OUT_OF_MEMORY", 100: "NO_DEVICE", 214: "ECC_UNCORRECTABLE", 218: "INVALID_PTX",
		222: "UNSUPPORTED_PTX_VERSION", 700: "ILLEGAL_ADDRESS", 999: "UNKNOWN", 46: "DEVICE_UNAVAILABLE",
	}
	if names[code] == "" {
		return invalidValue
	}
	*text = unsafe.SliceData([]byte(prefix + names[code] + "\x00"))
	return 0
}

func (f *fakeDriver) loadModules(d *cuda.Driver) {
	d.ModuleLoadDataEx = func(module *uintptr, image *byte, count uint32, options *int32, values *uintptr) cuda.Code {
		return f.call("cuModuleLoadDataEx", func() cuda.Code {
			*module = f.handle()
			f.modules[*module] = true
			return 0
		})
	}
	d.ModuleUnload = func(module uintptr) cuda.Code {
		return f.call("cuModuleUnload", func() cuda.Code { delete(f.modules, module); return 0 })
	}
	d.ModuleGetFunction = func(function *uintptr, module uintptr, name *byte) cuda.Code {
		return f.call("cuModuleGetFunction", func() cuda.Code { *function = f.handle(); return 0 })
	}
	d.LaunchKernel = func(function uintptr, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, stream uintptr, arguments, extra *unsafe.Pointer) cuda.Code {
		return f.call("cuLaunchKernel", func() cuda.Code {
			list := unsafe.Slice(arguments, 5)
			p, text, tiles := *(*parameters)(list[0]), *(*cuda.Pointer)(list[1]), *(*cuda.Pointer)(list[2])
			count, signatures := *(*uint32)(list[3]), *(*cuda.Pointer)(list[4])
			if gridX*blockX < count*lanes || shared < 4*warps*(lanes+p.queue) || p.queue&(p.queue-1) != 0 {
				return invalidValue
			}
			f.streams[stream] = append(f.streams[stream], func() { f.minhash(p, text, tiles, count, signatures) })
			return 0
		})
	}
}

func (f *fakeDriver) loadMemory(d *cuda.Driver) {
	d.MemAlloc = func(pointer *cuda.Pointer, bytes uintptr) cuda.Code {
		return f.call("cuMemAlloc", func() cuda.Code {
			if bytes > f.memory {
				return cuda.OutOfMemory
			}
			f.memory -= bytes
			memory := slices.Repeat([]byte{0xa5}, int(bytes)) // not cleared
			*pointer = cuda.Pointer(uintptr(unsafe.Pointer(&memory[0])))
			f.device[*pointer] = memory
			return 0
		})
	}
	d.MemFree = func(pointer cuda.Pointer) cuda.Code {
		return f.call("cuMemFree", func() cuda.Code {
			for stream := range f.streams { // freeing waits for everything
				f.run(stream)
			}
			f.memory += uintptr(len(f.device[pointer]))
			delete(f.device, pointer)
			return 0
		})
	}
	d.MemHostAlloc = func(memory *unsafe.Pointer, bytes uintptr, flags uint32) cuda.Code {
		return f.call("cuMemHostAlloc", func() cuda.Code {
			words := make([]uint64, bytes/8+1) // aligned
			block := bytesOf(words)[:bytes]
			*memory = unsafe.Pointer(&block[0])
			f.host[*memory] = block
			return 0
		})
	}
	d.MemFreeHost = func(memory unsafe.Pointer) cuda.Code {
		return f.call("cuMemFreeHost", func() cuda.Code {
			clear(f.host[memory])
			delete(f.host, memory)
			return 0
		})
	}
}

func (f *fakeDriver) loadStreams(d *cuda.Driver) {
	d.StreamCreate = func(stream *uintptr, flags uint32) cuda.Code {
		return f.call("cuStreamCreate", func() cuda.Code { *stream = f.handle(); f.streams[*stream] = nil; return 0 })
	}
	d.StreamDestroy = func(stream uintptr) cuda.Code {
		return f.call("cuStreamDestroy", func() cuda.Code { f.run(stream); delete(f.streams, stream); return 0 })
	}
	d.StreamSynchronize = func(stream uintptr) cuda.Code {
		return f.call("cuStreamSynchronize", func() cuda.Code { f.run(stream); return 0 })
	}
	d.EventCreate = func(event *uintptr, flags uint32) cuda.Code {
		return f.call("cuEventCreate", func() cuda.Code { *event = f.handle(); f.events[*event] = func() {}; return 0 })
	}
	d.EventDestroy = func(event uintptr) cuda.Code {
		return f.call("cuEventDestroy", func() cuda.Code { delete(f.events, event); return 0 })
	}
	d.EventRecord = func(event, stream uintptr) cuda.Code {
		return f.call("cuEventRecord", func() cuda.Code { f.events[event] = func() { f.run(stream) }; return 0 })
	}
	d.EventSynchronize = func(event uintptr) cuda.Code {
		return f.call("cuEventSynchronize", func() cuda.Code { f.events[event](); return 0 })
	}
	queue := func(name string, stream uintptr, work func()) cuda.Code {
		return f.call(name, func() cuda.Code {
			if !slices.Contains(slices.Collect(maps.Keys(f.streams)), stream) {
				return invalidValue
			}
			f.streams[stream] = append(f.streams[stream], work)
			return 0
		})
	}
	d.MemcpyHtoDAsync = func(to cuda.Pointer, from unsafe.Pointer, bytes, stream uintptr) cuda.Code {
		return queue("cuMemcpyHtoDAsync", stream, func() { copy(f.at(to, bytes), unsafe.Slice((*byte)(from), bytes)) })
	}
	d.MemcpyDtoHAsync = func(to unsafe.Pointer, from cuda.Pointer, bytes, stream uintptr) cuda.Code {
		return queue("cuMemcpyDtoHAsync", stream, func() { copy(unsafe.Slice((*byte)(to), bytes), f.at(from, bytes)) })
	}
	d.MemsetD32Async = func(to cuda.Pointer, value uint32, count, stream uintptr) cuda.Code {
		return queue("cuMemsetD32Async", stream, func() {
			for i := range count {
				binary.LittleEndian.PutUint32(f.at(to, 4*count)[4*i:], value)
			}
		})
	}
}

// minhash does what kernel.cu does in the simplest way: the first tile of a text computes
// all of it.
func (f *fakeDriver) minhash(p parameters, text, tiles cuda.Pointer, count uint32, signatures cuda.Pointer) {
	permutations := valuesOf[uint64](f.at(p.permutations, 16*uintptr(p.count)))
	for _, tile := range valuesOf[tile](f.at(tiles, uintptr(count)*unsafe.Sizeof(tile{}))) {
		if tile.start%16 != 0 || tile.to != tile.end && (tile.to-tile.from)%step != 0 {
			panic("a tile that kernel.cu does not support")
		}
		if tile.from != tile.start {
			continue
		}
		signature := valuesOf[uint32](f.at(signatures+cuda.Pointer(4*tile.text*p.count), 4*uintptr(p.count)))
		for _, shingle := range shinglesOf(string(f.at(text+cuda.Pointer(tile.start), uintptr(tile.end-tile.start))), p) {
			digest := sha1.Sum([]byte(shingle))
			h := binary.LittleEndian.Uint32(digest[:])
			for i := range signature {
				a, b := permutations[2*i], permutations[2*i+1]
				value := uint32(a)*minhash.Mix(h) + uint32(b)
				if p.legacy != 0 {
					value = uint32((a*uint64(h) + b - 1) % (1<<61 - 1))
				}
				signature[i] = min(signature[i], value)
			}
		}
	}
}

func shinglesOf(text string, p parameters) []string {
	units, joint := strings.Split(text, ""), ""
	if p.words != 0 {
		units, joint = strings.Split(text, " "), " "
	}
	size := int(p.size)
	if len(units) <= size {
		return []string{text}
	}
	var shingles []string
	for i := range len(units) - size + 1 {
		shingles = append(shingles, strings.Join(units[i:i+size], joint))
	}
	return shingles
}

// If any call fails in Open, nothing leaks.
func TestOpenThatFails(t *testing.T) {
	for _, call := range []string{
		"cuInit", "cuDeviceGet", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAlloc", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync",
	} {
		fake := newFakeDriver()
		fake.failures[call] = 999
		k := &kernel{load: fake.load}
		err := k.Open(t.Context(), gpuDevice, nil)
		if err == nil || !strings.Contains(err.Error(), call+": CUDA_ERROR_UNKNOWN") {
			t.Errorf("%s: %v", call, err)
		}
		if err := k.Close(); err != nil || fake.leaks() != noLeaks {
			t.Errorf("%s: close: %v; leaked: %s", call, err, fake.leaks())
		}
	}
}
