package orchestrator

import (
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/files"
)

const (
	samplesFile = "samples"
	// sampleInterval is how often a sample is kept: nine hours of eight GPUs take a few
	// megabytes.
	sampleInterval = 10 * time.Second
)

// samples records the health of the job's GPUs as JSON lines in the job folder. Write
// errors are ignored: samples must not stop the job.
type samples struct {
	path string
	file *os.File
	next time.Time
}

// take writes a sample of each device if one is due.
func (s *samples) take(all []gpu.Health, now time.Time) {
	if s.path == "" || now.Before(s.next) {
		return
	}
	s.next = now.Add(sampleInterval)
	if s.file == nil {
		file, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, files.PrivateMode)
		if err != nil {
			s.path = ""
			return
		}
		s.file = file
	}
	for _, h := range all {
		line, err := json.Marshal(struct {
			Time time.Time `json:"time"`
			DeviceSample
		}{now, newDeviceSample(h)})
		if err == nil {
			_, _ = s.file.Write(append(line, '\n'))
		}
	}
}

func (s *samples) close() {
	if s.file != nil {
		s.file.Close()
	}
}
