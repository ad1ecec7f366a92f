package jobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/owned"
)

// Info identifies a job, without its command line, which may contain secrets.
type Info struct {
	ID string `json:"id"`
	// Name is the user's name for the job, "" if none.
	Name    string    `json:"name,omitempty"`
	PID     int       `json:"pid"`
	Kernel  string    `json:"kernel"`
	Input   string    `json:"input"`
	Output  string    `json:"output"` // absolute
	Started time.Time `json:"started"`
}

// Entry is the content of a job's file. It never changes.
type Entry struct {
	Info
	Socket string `json:"socket"`
}

// maxSocketPath is the maximum length of a Unix socket's path, with a margin: the error of
// the system does not mention lengths.
const maxSocketPath = 100

// Registration makes this process's job visible to others.
type Registration struct {
	Entry    Entry
	listener net.Listener
	path     string
	file     *os.File
	ownDir   string // of the socket, if the folder's path is too long
}

// NewEntry completes the entry of a job of this process, without making it visible.
func NewEntry(e Entry) Entry {
	e.ID, e.PID, e.Started = fmt.Sprintf("%08x", rand.Uint32()), os.Getpid(), time.Now()
	return e
}

// Register makes the job visible. It creates the socket first, so that a client that finds
// the file can connect. The caller must call Serve, and Close when the job ends.
func Register(e Entry) (*Registration, error) {
	dir, err := Folder()
	if err != nil {
		return nil, err
	}
	e = NewEntry(e)
	r := &Registration{path: filepath.Join(dir, e.ID+entrySuffix)}
	e.Socket = filepath.Join(dir, e.ID+".sock")
	if len(e.Socket) > maxSocketPath {
		if r.ownDir, err = os.MkdirTemp("/tmp", "gpurun-job-"); err != nil {
			return nil, fault.SocketFolder.Of(fault.Storage, "create a folder for the job's socket: %w", err)
		}
		e.Socket = filepath.Join(r.ownDir, "sock")
	}
	r.Entry = e
	if err := r.create(); err != nil {
		r.Close()
		return nil, fault.JobFiles.New("register the job: %w", err)
	}
	return r, nil
}

func (r *Registration) create() (err error) {
	if r.listener, err = net.Listen("unix", r.Entry.Socket); err != nil {
		return err
	}
	if err := os.Chmod(r.Entry.Socket, 0o600); err != nil {
		return err
	}
	data, err := json.Marshal(r.Entry)
	if err != nil {
		return err
	}
	r.file, err = owned.Create(r.path, append(data, '\n'), 0o600, true)
	return err
}

// Close removes the job's file and socket, and ends Serve.
func (r *Registration) Close() {
	if r.file != nil {
		owned.Remove(r.path, r.file)
		r.file = nil
	}
	if r.listener != nil {
		_ = r.listener.Close() // removes the socket
	}
	if r.ownDir != "" {
		_ = os.RemoveAll(r.ownDir)
	}
}
