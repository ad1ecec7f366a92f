package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/owned"
)

// Entry is what a job's file says. It never changes.
type Entry struct {
	ID string `json:"id"`
	// Name is what the user calls the job, "" for nothing.
	Name    string    `json:"name,omitempty"`
	PID     int       `json:"pid"`
	Kernel  string    `json:"kernel"`
	Input   string    `json:"input"`
	Output  string    `json:"output"` // absolute
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	Socket  string    `json:"socket"`
}

// maxSocketPath is what a unix socket's name may have, with room to spare: the
// system's own error says nothing of lengths.
const maxSocketPath = 100

// Registration is this process's job among the others.
type Registration struct {
	Entry    Entry
	listener net.Listener
	path     string
	file     *os.File
	ownDir   string // of the socket, where the folder's name is too long
}

// Register makes the job known: its socket first, so that who finds the file finds
// an answer. The caller serves it with Serve, and closes it at the job's end.
func Register(e Entry) (*Registration, error) {
	dir, err := findFolder()
	if err != nil {
		return nil, err
	}
	e.ID, e.PID, e.Started = newID(), os.Getpid(), time.Now()
	r := &Registration{path: filepath.Join(dir, e.ID+entrySuffix)}
	e.Socket = filepath.Join(dir, e.ID+".sock")
	if len(e.Socket) > maxSocketPath {
		if r.ownDir, err = os.MkdirTemp("/tmp", "gpurun-job-"); err != nil {
			return nil, fault.New(fault.Storage, "make a folder for the job's socket: %w", err)
		}
		e.Socket = filepath.Join(r.ownDir, "sock")
	}
	r.Entry = e
	if err := r.create(); err != nil {
		r.Close()
		return nil, fault.New(fault.Storage, "register the job: %w", err)
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

// Close makes the job unknown again; what serves it ends.
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

func newID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
