package wire

import (
	"encoding/binary"
	"io"

	"github.com/gpurun/gpurun/internal/frame"
)

// Descriptor is the worker's end of the connection. GuardDescriptor is its guard's own
// connection: the guard sends the worker's pid over it, and knows by its end that the
// orchestrator has exited.
const (
	Descriptor      = 3
	GuardDescriptor = 4
)

// The arguments that start this program as a worker, as the guard of one, as the guard of
// templates, or as a built-in kernel.
const (
	GuardArgument     = "gpurun-guard"
	WorkerArgument    = "gpurun-worker"
	TemplatesArgument = "gpurun-templates"
	KernelArgument    = "gpurun-kernel"
)

// MarkVariable is an environment variable that a worker passes to everything it starts.
// Its value comes from proc.NewMark and lets the orchestrator, or the next one if it was
// killed too, find the processes of a killed worker.
const MarkVariable = "GPURUN_WORKER_MARK"

// SendPID sends the worker's pid to the orchestrator.
func SendPID(w io.Writer, pid int) error {
	return binary.Write(w, binary.LittleEndian, int64(pid))
}

// ReceivePID receives the pid that SendPID sent.
func ReceivePID(r io.Reader) (int, error) {
	var pid int64
	err := binary.Read(r, binary.LittleEndian, &pid)
	return int(pid), err
}

// maxMessage limits the size of a message, which contains no records.
const maxMessage = 16 << 20

// Conn sends and receives messages. Send is safe for concurrent use; Receive must be
// called from one goroutine at a time.
type Conn struct{ frames *frame.Conn }

// NewConn returns a Conn on rw. The caller must close rw.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{frame.NewConn(rw, maxMessage)} }

// Send writes one message. After a failed write, all others fail too.
func (c *Conn) Send(m Message) error { return c.frames.Send(m) }

// Receive reads one message. io.EOF means that the peer closed the connection,
// io.ErrUnexpectedEOF that it did so in the middle of a message.
func (c *Conn) Receive() (m Message, err error) {
	err = c.frames.Receive(&m)
	return m, err
}
