package plugins

// Warner is implemented by kernels that report problems to the user although no record
// fails, for example that a program was restarted. gpurun shows each warning once.
//
// Warnings returns all warnings so far; the kernel must keep the list short. It is called
// after each batch, and must be safe to call from another goroutine than Process.
type Warner interface {
	Warnings() []string
}

// warningFeed sends each warning once.
type warningFeed struct {
	warner Warner // nil if the kernel is not one
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
