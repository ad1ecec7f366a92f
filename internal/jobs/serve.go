package jobs

import (
	"net/http"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/httpserve"
)

// MaxConnections is how many connections a job's socket serves at a time; others wait.
const MaxConnections = 256

// Serve serves a registered job's socket until the returned function is called: its own
// paths below /v1, and everything else from api, which may be nil.
func (r *Registration) Serve(job Job, api http.Handler) (end func()) {
	stop := httpserve.Serve(r.listener, MaxConnections, newHandler(r.Entry, job, api))
	return func() {
		stop()
		if last := job.Snapshot(); !last.Started.IsZero() {
			remember(filepath.Dir(r.path), Ended{Entry: r.Entry, Ended: time.Now(), Status: last})
		}
		r.Close()
	}
}
