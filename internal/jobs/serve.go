package jobs

import (
	"net/http"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/view"
)

// MaxConnections is how many connections a job's socket serves at a time; others wait.
const MaxConnections = 256

// Serve serves the API of a registered job on its socket until the returned function is
// called. last returns what is remembered of the job.
func (r *Registration) Serve(api http.Handler, last func() view.View) (end func()) {
	stop := httpserve.Serve(r.listener, MaxConnections, api)
	return func() {
		stop()
		if v := last(); !v.Started.IsZero() {
			remember(filepath.Dir(r.path), Ended{Entry: r.Entry, Ended: time.Now(), Folder: v.Folder, Total: v.Total, Done: v.Done, Answers: v.Answers})
		}
		r.Close()
	}
}
