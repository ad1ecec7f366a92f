package serve

import (
	"context"
	"fmt"
	"time"
)

// checks is how often the health of a server is checked within the time that it may answer
// nothing.
const checks = 6

// watch ends the server when it answers nothing for too long: neither its requests nor
// whether it is healthy.
func (s *server) watch(limit time.Duration) {
	client := s.httpClient()
	client.Timeout = max(limit/2, time.Second)
	s.seen.Store(time.Now().UnixNano())
	go func() {
		defer client.CloseIdleConnections()
		ticker := time.NewTicker(limit / checks)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-s.stopped:
				return
			case <-s.lost.Done():
				return
			}
			if healthy(context.Background(), client, s.place.url) == nil {
				s.seen.Store(time.Now().UnixNano())
			} else if time.Since(time.Unix(0, s.seen.Load())) > limit {
				s.kill(fmt.Sprintf("answered nothing for %s", limit))
				return
			}
		}
	}()
}
