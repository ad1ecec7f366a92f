package plugins

import "slices"

// Warner is a kernel that has something to report to the user although no record fails
// by it: a program that was restarted, for example. gpurun shows each warning once.
//
// Warnings returns every warning so far; the kernel keeps the list short. It is called
// after each batch, and must be safe to call from another goroutine than Process.
type Warner interface {
	Warnings() []string
}

// warningFeed sends each warning once.
type warningFeed struct {
	warner Warner // nil: the kernel has none
	sent   map[string]bool
}

func newWarningFeed(k Kernel) *warningFeed {
	warner, _ := k.(Warner)
	return &warningFeed{warner: warner, sent: make(map[string]bool)}
}

// next returns the warnings since the last call.
func (f *warningFeed) next() (list []string) {
	if f.warner == nil {
		return nil
	}
	for _, text := range f.warner.Warnings() {
		if !f.sent[text] {
			f.sent[text] = true
			list = append(list, valid(text))
		}
	}
	return list
}

func (c *client) noteWarnings(list []string) {
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, list...)
}

// Warnings are those of the kernel process so far.
func (c *client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.warnings)
}
