package jobs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/owned"
)

const entrySuffix = ".json"

// List returns this user's running jobs, oldest first, and removes the files of dead ones.
func List() []Entry {
	var jobs []Entry
	for _, dir := range readable() {
		names, _ := owned.Names(dir, entrySuffix)
		for _, name := range names {
			if e, lives := readEntry(filepath.Join(dir, name)); lives {
				jobs = append(jobs, e)
			}
		}
		owned.Sweep(dir, time.Now())
	}
	slices.SortFunc(jobs, func(a, b Entry) int { return a.Started.Compare(b.Started) })
	return slices.CompactFunc(jobs, func(a, b Entry) bool { return a.ID == b.ID })
}

// readEntry reads a job's file. It removes the file and socket of a dead job.
func readEntry(path string) (e Entry, lives bool) {
	data, lives, err := owned.Read(path)
	if err != nil {
		return e, false
	}
	damaged := json.Unmarshal(data, &e) != nil
	if !lives {
		if !damaged {
			remember(filepath.Dir(path), Ended{Entry: e, Ended: time.Now(), Error: "its process was killed"})
		}
		id := strings.TrimSuffix(filepath.Base(path), entrySuffix)
		_ = os.Remove(filepath.Join(filepath.Dir(path), id+".sock"))
		if dir := filepath.Dir(e.Socket); !damaged && strings.HasPrefix(filepath.Base(dir), "gpurun-job-") {
			_ = os.Remove(e.Socket)
			_ = os.Remove(dir)
		}
		_ = os.Remove(path)
	}
	return e, lives && !damaged
}

// Find returns the one running job that ref refers to: an id or a prefix of one, a name,
// or the path of an output. Errors are fault.Usage and list the running jobs.
func Find(ref string) (Entry, error) {
	jobs := List()
	output, err := filepath.Abs(ref)
	if err != nil {
		output = ref
	}
	for _, means := range []func(Entry) bool{
		func(e Entry) bool { return e.ID == ref },
		func(e Entry) bool { return e.Output == output },
		func(e Entry) bool { return e.Name == ref },
		func(e Entry) bool { return ref != "" && strings.HasPrefix(e.ID, ref) },
	} {
		var found []Entry
		for _, e := range jobs {
			if means(e) {
				found = append(found, e)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return Entry{}, fault.NoRunningJob.New("%q matches several jobs: %s", ref, describe(found))
	}
	if len(jobs) == 0 {
		return Entry{}, fault.NoRunningJob.New("no job %q is running: there are no running jobs", ref)
	}
	return Entry{}, fault.NoRunningJob.New("no job %q is running; running jobs: %s", ref, describe(jobs))
}

func describe(jobs []Entry) string {
	var list []string
	for _, e := range jobs {
		text := fmt.Sprintf("%s (%s)", e.ID, e.Output)
		if e.Name != "" {
			text = fmt.Sprintf("%s (%s, %s)", e.ID, e.Name, e.Output)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
