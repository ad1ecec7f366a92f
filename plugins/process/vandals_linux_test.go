package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// The kernels in this file attack the shared memory. keptDescriptor is the arena's
// descriptor in those that keep it, as a kernel in another language might.
const keptDescriptor = 77

func init() {
	programs["vandal"] = func() {
		if err := unix.Dup2(3, keptDescriptor); err != nil {
			panic(err)
		}
		plugins.Serve(vandal{})
	}
	programs["another file"] = func() {
		file, err := os.CreateTemp("", "gpurun-test")
		if err != nil {
			panic(err)
		}
		_ = os.Remove(file.Name())
		_, _ = file.Write(bytes.Repeat([]byte("not a record "), 100_000))
		_ = file.Truncate(protocol.ArenaSize)
		if err := unix.Dup2(int(file.Fd()), 3); err != nil {
			panic(err)
		}
		plugins.Serve(vandal{})
	}
	programs["no descriptor"] = func() {
		_ = unix.Close(3)
		plugins.Serve(vandal{})
	}
	programs["no address space"] = func() {
		limitAddressSpace(2 << 30)
		plugins.Serve(vandal{})
	}
	programs["restricted"] = restricted
}

// vandal does to the arena what the record says and returns the outcome.
type vandal struct{ plugins.Base }

func (vandal) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		record := batch.Record(i)
		word := strings.TrimSpace(strings.Trim(string(record[:min(len(record), 2*protocol.InlineBelow)]), `"`))
		answer := ""
		switch word {
		case "write":
			record[1] = 'X'
		case "large":
			results.Line(i, bytes.Repeat([]byte("7"), protocol.Outsized))
			continue
		case "hang":
			time.Sleep(time.Hour)
		case "exit":
			os.Exit(6)
		case "error":
			return errors.New("no")
		case "environment":
			answer = childSees("env")
		case "descriptors":
			_ = unix.Close(keptDescriptor)
			answer = childSees("ls", "-l", "/proc/self/fd") + "its own: " + os.Getenv(protocol.ArenaVariable)
		case "inode":
			answer = inodeOf(keptDescriptor)
		case "attack":
			answer = attack()
		case "shared":
			answer = fmt.Sprint(mappedHere())
		default:
			results.Unchanged(i)
			continue
		}
		line, _ := json.Marshal(answer)
		results.Line(i, line)
	}
	return nil
}

func childSees(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func inodeOf(descriptor int) string {
	var stat unix.Stat_t
	if err := unix.Fstat(descriptor, &stat); err != nil {
		return err.Error()
	}
	return fmt.Sprint(stat.Ino)
}

// attack tries everything that would shrink or grow the memory under the worker, and
// returns the attempts that were not rejected.
func attack() string {
	var done []string
	try := func(name string, err error) {
		if err == nil {
			done = append(done, name)
		}
	}
	descriptors := []int{keptDescriptor}
	if again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", keptDescriptor), unix.O_RDWR, 0); err == nil {
		descriptors = append(descriptors, again)
	}
	for _, fd := range descriptors {
		try("truncate", unix.Ftruncate(fd, 0))
		try("shrink", unix.Ftruncate(fd, 4096))
		try("grow", unix.Ftruncate(fd, 1<<40))
		try("allocate past the end", unix.Fallocate(fd, 0, protocol.ArenaSize, 4096))
		_, err := unix.Pwrite(fd, []byte("x"), protocol.ArenaSize)
		try("write past the end", err)
		for _, seal := range []int{unix.F_SEAL_WRITE, unix.F_SEAL_FUTURE_WRITE, unix.F_SEAL_SHRINK} {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
			try(fmt.Sprint("seal ", seal), err)
		}
	}
	path := fmt.Sprintf("/proc/self/fd/%d", keptDescriptor)
	if file, err := os.OpenFile(path, os.O_RDWR|os.O_TRUNC, 0); err == nil {
		var stat unix.Stat_t
		if unix.Fstat(int(file.Fd()), &stat) != nil || stat.Size != protocol.ArenaSize {
			done = append(done, "truncate by opening")
		}
		file.Close()
	}
	try("truncate by path", unix.Truncate(path, 1))
	return strings.Join(done, ", ")
}

// mappedHere reports whether this process has mapped an arena.
func mappedHere() bool {
	maps, _ := os.ReadFile("/proc/self/maps")
	return bytes.Contains(maps, []byte("memfd:gpurun-arena"))
}

// limitAddressSpace limits this process to the given number of bytes more than it has.
func limitAddressSpace(more uint64) {
	var pages uint64
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &pages)
	}
	if err != nil {
		panic(err)
	}
	limit(unix.RLIMIT_AS, pages*uint64(os.Getpagesize())+more)
}

func limit(resource int, soft uint64) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		panic(err)
	}
	limit.Cur = soft
	if err := unix.Setrlimit(resource, &limit); err != nil {
		panic(err)
	}
}

// outcome is what a restricted host reports about the kernel that it started.
type outcome struct {
	Size uint64 // of the arena, 0 for inline
	Log  string
	Err  string
}

// restricted is a host whose environment denies something.
func restricted() {
	var log bytes.Buffer
	command := Command{Path: os.Args[0], Env: append(os.Environ(), kernelVariable+"=good"), Dir: "/", Log: &log, CloseTimeout: time.Minute}
	switch os.Getenv("GPURUN_TEST_RESTRICT") {
	case "file size":
		limit(unix.RLIMIT_FSIZE, 100<<20)
	case "larger file size":
		limit(unix.RLIMIT_FSIZE, 2<<30)
	case "address space": // the kernel process would not even start
		limitAddressSpace(500 << 20)
		shared, _ := (Command{Log: &log}).newArena()
		tellOutcome(outcome{Size: sizeOf(shared), Log: log.String()})
		return
	case "larger address space":
		limitAddressSpace(4 << 30)
		shared, _ := (Command{Log: &log}).newArena()
		tellOutcome(outcome{Size: sizeOf(shared), Log: log.String()})
		return
	case "memfd":
		refuse(unix.SYS_MEMFD_CREATE)
	case "inline":
		command.Inline = true
	}
	size, err := startAndCall(command)
	o := outcome{Size: size, Log: log.String()}
	if err != nil {
		o.Err = err.Error()
	}
	tellOutcome(o)
}

func tellOutcome(o outcome) { _ = json.NewEncoder(os.Stdout).Encode(o) }

func startAndCall(command Command) (size uint64, err error) {
	p, err := Start(context.Background(), command)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	if _, err := p.Describe(context.Background(), nil); err != nil {
		return 0, err
	}
	record := bytes.Repeat([]byte("1"), 10_000)
	results, err := plugins.Call(context.Background(), p, plugins.NewBatch([][]byte{record, record, []byte(`"5 MiB"`)}))
	if err == nil && (results.At(1).Verdict != plugins.Unchanged || len(results.At(2).Lines[0]) != 5<<20) {
		err = errors.New("the results are wrong")
	}
	size = sizeOf(p.link.sharedArena())
	return size, errors.Join(err, p.Close())
}

// refuse makes a system call fail from now on, in this process and its children.
func refuse(call uint32) {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		panic(errno)
	}
}
