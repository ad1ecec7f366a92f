//go:build !linux

package proc

// BecomeSubreaper works on Linux only; elsewhere process groups must suffice.
func BecomeSubreaper() error { return nil }

// KillChildren needs a subreaper: it does nothing here.
func KillChildren(...int) []Stuck { return nil }

// KillMarked needs /proc: it does nothing here.
func KillMarked(string) (int, []Stuck) { return 0, nil }

// ReapOrphans needs a subreaper: it does nothing here.
func ReapOrphans() (stop func()) { return func() {} }

func describeStuck(pid int) Stuck { return Stuck{PID: pid} }

// Lives is unknown here.
func (s Stuck) Lives() bool { return false }

// Ancestors needs /proc: it returns nothing here.
func Ancestors(int) []int { return nil }

// Descendants needs /proc: it returns nothing here.
func Descendants(int) []int { return nil }

func markOfSelf() string { return "" }

// KillAbandoned needs /proc: it does nothing here.
func KillAbandoned(string) (int, []Stuck) { return 0, nil }
