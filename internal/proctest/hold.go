// Package proctest gives tests a process that SIGKILL does not end, as one that hangs
// in a driver does not: a tracer holds it at its exit. Where tracing is not allowed, the
// test is skipped and says what was not tested.
package proctest

import "testing"

// Hold makes a process survive SIGKILL until the end of the test, or until release is
// called. Where the system lets only descendants be traced, the process must have
// called AllowHold. It must not be a child of the test's own process, which would see
// it stop: let another process call Seize then.
func Hold(t testing.TB, pid int) (release func()) {
	t.Helper()
	release, err := Seize(pid)
	if err != nil {
		t.Skipf("NOT TESTED: a process that cannot be killed, since none can be traced here: %v", err)
	}
	t.Cleanup(release)
	return release
}
