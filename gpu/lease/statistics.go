package lease

import "time"

// Statistics count all leases ever taken, by how they ended:
//
//	Allocated = Held + Released + OwnerDied + Expired + Damaged + Unaccounted
type Statistics struct {
	Allocated int `json:"allocated"`
	Held      int `json:"held"`
	Released  int `json:"released"`
	OwnerDied int `json:"owner_died"`
	Expired   int `json:"expired"`
	Damaged   int `json:"damaged"`
	// Unaccounted leases ended without a record: their files were removed, or the
	// history could not be written.
	Unaccounted int `json:"unaccounted"`
	// Refused is the number of requests that got no lease.
	Refused int `json:"refused"`
}

// count adds one event.
func (s *Statistics) count(e Event) {
	if e.Event == totalled && e.Totals != nil {
		s.Allocated += e.Totals.Allocated
		s.Released += e.Totals.Released
		s.OwnerDied += e.Totals.OwnerDied
		s.Expired += e.Totals.Expired
		s.Damaged += e.Totals.Damaged
		s.Refused += e.Totals.Refused
		return
	}
	counters := map[string]*int{
		Allocated: &s.Allocated, Released: &s.Released, OwnerDied: &s.OwnerDied,
		Expired: &s.Expired, Damaged: &s.Damaged, Refused: &s.Refused,
	}
	if counter, known := counters[e.Event]; known {
		*counter++
	}
}

// Statistics counts the leases of all users whose history can be read.
func (f *Folder) Statistics() (Statistics, error) {
	var s Statistics
	for _, path := range f.histories("") {
		eachEvent(path, s.count) // its totals include the rotated history
	}
	all, err := f.read(time.Now())
	for _, l := range all {
		if l.ended == "" {
			s.Held++
		} else { // not swept yet
			s.count(Event{Event: l.ended})
		}
	}
	ended := s.Held + s.Released + s.OwnerDied + s.Expired + s.Damaged
	s.Allocated = max(s.Allocated, ended) // the history has only the end of some
	s.Unaccounted = s.Allocated - ended
	return s, err
}
