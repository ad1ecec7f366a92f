package orchestrator

import (
	"encoding/json"
	"os"
)

// scalingFile is the file in the job folder with the last good number of workers of each
// device, where a resumed job starts.
const scalingFile = "scaling.json"

// savedWorkers is the last good number of workers of a device.
type savedWorkers struct {
	Workers int  `json:"workers"`
	Settled bool `json:"settled"`
}

// save writes the numbers to the job folder if they have changed. They only save time: a
// file that cannot be written is no reason to stop.
func (s *scaler) save() {
	all := make(map[string]savedWorkers, len(s.groups))
	changed := false
	for _, g := range s.groups {
		workers, settled := g.search.Good()
		all[g.name] = savedWorkers{workers, settled}
		changed = changed || all[g.name] != s.saved[g.name]
	}
	if !changed || !resumable(s.job.config) {
		return
	}
	s.saved = all
	data, err := json.Marshal(all)
	if err != nil {
		return
	}
	path := s.job.folder.join(scalingFile)
	if os.WriteFile(path+".new", data, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

// readSaved reads what an earlier run of the job has saved; a missing or damaged file is
// empty.
func readSaved(path string) (all map[string]savedWorkers) {
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &all) != nil {
		return nil
	}
	return all
}
