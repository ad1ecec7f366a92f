// Package template starts processes by forking one that has done the slow part of a start
// already, such as importing torch: the template. It knows nothing of Python: a template is a
// program that loads, answers "ready", and forks when it is asked to.
//
//	orchestrator ── guard ── template (a fresh exec, one for each key)
//	                  ├───── child of one kernel process
//	                  └───── child of another
//
// The guard is the subreaper of all of them. A template forks twice, so that its children are
// the guard's: the guard reaps them and reports how they ended, and the death of the template
// kills nothing that computes. Environment variables and parent-death signals do not tell whose
// a child is, since it has the template's. Instead:
//
//   - The child gets a lifeline, a pipe whose other end only the process that asked for it holds.
//     The system kills the child when that end closes.
//   - The guard kills the child's group, and everything with its mark, when that process
//     disconnects.
//   - The child writes its own marks over the template's, in the memory that
//     /proc/PID/environ shows.
package template

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
)

// Variable is an environment variable of a process that may ask for a child; see Offer.
const Variable = "GPURUN_KERNEL_TEMPLATES"

// Offer is what a process that may ask for a child must know.
type Offer struct {
	// Mark is what the child gets.
	Mark string
	// Keep is how long the template stays warm after its last child has exited; 0 for a template
	// that ends with the job.
	Keep time.Duration
	// Socket is where the guard listens.
	Socket string
}

// String returns the value of Variable.
func (o Offer) String() string { return fmt.Sprintf("%s:%s:%s", o.Mark, o.Keep, o.Socket) }

// Offered returns the offer that this process has.
func Offered() (o Offer, ok bool) {
	parts := strings.SplitN(os.Getenv(Variable), ":", 3)
	if len(parts) != 3 {
		return o, false
	}
	keep, err := time.ParseDuration(parts[1])
	return Offer{Mark: parts[0], Keep: keep, Socket: parts[2]}, err == nil
}

// MarkVariable is an environment variable that identifies a child and its descendants. A template's
// value is at least as long as its children's, which overwrite it.
const MarkVariable = "GPURUN_KERNEL_MARK"

// NewMark returns a value of MarkVariable.
func NewMark() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// Request asks for a process.
type Request struct {
	// Key names the template. The first request with a key starts it.
	Key string `json:"key"`
	// Path and Args are the command of the template, Env what is added to the guard's
	// environment.
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	// Mark is the value of MarkVariable in the child. Owner is whose CPU time it uses.
	Mark  string `json:"mark"`
	Owner string `json:"owner"`
	// Message is for the template.
	Message any `json:"message,omitempty"`
	// Keep makes the template a warm one, which outlives jobs; see Offer. Env is its whole
	// environment then, and About is for people.
	Keep  time.Duration `json:"keep,omitempty"`
	About string        `json:"about,omitempty"`
}

// Load is what the start of a template took.
type Load struct {
	Seconds float64 `json:"seconds"`
	// Slowest are the slowest imports, and the seconds that each took alone.
	Slowest []Import `json:"slowest,omitempty"`
	// Unsafe is why the template must not be forked; empty if it may.
	Unsafe string `json:"unsafe,omitempty"`
}

// Took is how long the start of the template took.
func (l Load) Took() time.Duration { return time.Duration(l.Seconds * float64(time.Second)) }

// Import is a module and the seconds that its import took.
type Import struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// ErrRefused: the guard offers no process. The caller starts one without a template.
var ErrRefused = errors.New("no template")

// order is a message to the guard on the connection of a child.
type order struct {
	Request *Request `json:"request,omitempty"`
	// Load: only start the template, for a request that follows.
	Load bool `json:"load,omitempty"`
	Kill bool `json:"kill,omitempty"`
	// Spoil: fork no more from this child's template, and why.
	Spoil string `json:"spoil,omitempty"`
	// List asks for the templates; Stop ends those that have no children, and a guard without any.
	List bool `json:"list,omitempty"`
	Stop bool `json:"stop,omitempty"`
	// Used asks for the CPU time of the exited children of an owner, once.
	Used string `json:"used,omitempty"`
}

// report is a message from the guard.
type report struct {
	PID int `json:"pid,omitempty"`
	// Itself: the process is the template, which can serve only once.
	Itself  bool       `json:"itself,omitempty"`
	Load    Load       `json:"load,omitzero"`
	Refused string     `json:"refused,omitempty"`
	Exit    *proc.Exit `json:"exit,omitempty"`
	Warm    []Warm     `json:"warm,omitempty"`
	// CPU answers Used.
	CPU time.Duration `json:"cpu,omitempty"`
}

// Warm is a template that outlives jobs.
type Warm struct {
	PID   int    `json:"pid"`
	About string `json:"about"`
	// Children are at work now. Left is how long it stays without any.
	Children int           `json:"children"`
	Left     time.Duration `json:"left_ns"`
	Memory   uint64        `json:"memory"`
}

// usage is a message from the guard to the process that has started it: a child has exited.
type usage struct {
	Owner string        `json:"owner"`
	CPU   time.Duration `json:"cpu"`
}

// maxPacket limits a message. maxFiles limits the descriptors that come with one.
const (
	maxPacket = 128 << 10
	maxFiles  = 8
)

// dial connects to the guard that listens at socket.
func dial(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
}

// listen returns what a guard inherits to listen at socket.
func listen(socket string) (*os.File, error) {
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	return listener.File()
}

// send sends a message and descriptors as one packet.
func send(conn *net.UnixConn, message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxPacket {
		return errors.New("the message to the template is too large")
	}
	return sendBody(conn, body, files)
}

func sendBody(conn *net.UnixConn, body []byte, files []*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(body, rights, nil)
	return err
}

// receive receives a packet: its message and descriptors.
func receive(conn *net.UnixConn, message any) ([]*os.File, error) {
	body, rights := make([]byte, maxPacket), make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, rightsLen, flags, _, err := conn.ReadMsgUnix(body, rights)
	if err != nil {
		return nil, err
	}
	files := received(rights[:rightsLen])
	if n == 0 || flags&syscall.MSG_CTRUNC != 0 { // the end, or too many open files
		closeAll(files)
		return nil, net.ErrClosed
	}
	if err := json.Unmarshal(body[:n], message); err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// received returns the files of a packet's control data.
func received(rights []byte) (files []*os.File) {
	messages, _ := syscall.ParseSocketControlMessage(rights)
	for _, m := range messages {
		fds, _ := syscall.ParseUnixRights(&m)
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
