package template

import (
	"encoding/json"
	"os"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
)

// Guard is a running guard, as the process that has started it sees it.
type Guard struct {
	// Socket is where it listens.
	Socket   string
	process  *proc.Process
	lifeline *os.File
	read     chan struct{} // closed when all of its messages are read
}

// Start starts a guard. The command must call [Serve]; the guard listens at socket, whose folder
// must be private to the user. used is called with the CPU time of each child that has exited.
func Start(c proc.Command, socket string, used func(owner string, cpu time.Duration)) (*Guard, error) {
	listening, err := listen(socket)
	if err != nil {
		return nil, err
	}
	defer listening.Close()
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.ExtraFiles = []*os.File{listening, theirs}
	process, err := proc.Start(c)
	if err != nil {
		ours.Close()
		return nil, err
	}
	g := &Guard{Socket: socket, process: process, lifeline: ours, read: make(chan struct{})}
	go func() {
		defer close(g.read)
		messages := json.NewDecoder(ours)
		for {
			var u usage
			if messages.Decode(&u) != nil {
				return
			}
			used(u.Owner, u.CPU)
		}
	}()
	return g, nil
}

// PID returns its process, whose children are the templates and what they have forked.
func (g *Guard) PID() int { return g.process.Pid() }

// Lives reports whether the guard is running.
func (g *Guard) Lives() bool { return !g.process.Exited() }

// endTime is how long a guard may take to kill the children and to end the templates.
const endTime = 3 * time.Second

// Close ends the guard and everything below it.
func (g *Guard) Close() {
	g.lifeline.Close()
	g.process.End(endTime)
	<-g.read
	_ = os.Remove(g.Socket)
}
