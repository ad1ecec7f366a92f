package python

import "testing"

// SetPreparedSize limits the memory for what prepare processes return.
func SetPreparedSize(t *testing.T, size int) {
	before := preparedSizes
	preparedSizes = []int{size}
	t.Cleanup(func() { preparedSizes = before })
}
