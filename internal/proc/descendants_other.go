//go:build !linux

package proc

// BecomeSubreaper is Linux's; elsewhere process groups must do.
func BecomeSubreaper() error { return nil }

// KillChildren needs a subreaper: it does nothing here.
func KillChildren(...int) []Stuck { return nil }

// KillMarked needs /proc: it does nothing here.
func KillMarked(string) (int, []Stuck) { return 0, nil }

// ReapOrphans needs a subreaper: it does nothing here.
func ReapOrphans() (stop func()) { return func() {} }

func describeStuck(pid int) Stuck { return Stuck{PID: pid} }

// Lives cannot tell here.
func (s Stuck) Lives() bool { return false }

// Ancestors needs /proc: nobody has any here.
func Ancestors(int) []int { return nil }

func markOfSelf() string { return "" }

// KillAbandoned needs /proc: it does nothing here.
func KillAbandoned(string) (int, []Stuck) { return 0, nil }
