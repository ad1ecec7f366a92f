// Package proctest gives tests a process that does not exit after SIGKILL, like one that
// hangs in a driver: a tracer holds it at its exit. Where tracing is not allowed, the test
// is skipped and reports what was not tested.
package proctest

import "testing"

// Hold makes a process survive SIGKILL until the test ends or release is called. Where the
// system only allows tracing descendants, the process must have called AllowHold. It must
// not be a child of the test process, which would see it stop; in that case, let another
// process call Seize.
func Hold(t testing.TB, pid int) (release func()) {
	t.Helper()
	release, err := Seize(pid)
	if err != nil {
		t.Skipf("NOT TESTED: a process that cannot be killed, because tracing is not possible here: %v", err)
	}
	t.Cleanup(release)
	return release
}
