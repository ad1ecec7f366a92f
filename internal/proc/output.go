package proc

import (
	"io"
	"os"
)

// Output runs c and returns what it printed, on both of its outputs, and how it exited.
// Unlike those of os/exec, its child keeps its exit status beside [ReapOrphans].
func Output(c Command) (string, Exit, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", Exit{}, err
	}
	defer read.Close()
	c.Stdout, c.Stderr = write, write
	process, err := Start(c)
	write.Close()
	if err != nil {
		return "", Exit{}, err
	}
	text, err := io.ReadAll(read)
	<-process.Done()
	return string(text), process.Exit(), err
}
