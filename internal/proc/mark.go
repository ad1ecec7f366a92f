package proc

import (
	"crypto/rand"
	"encoding/hex"
)

// NewMark returns a unique value for an environment variable that identifies the
// descendants of this process and tells whether this process is still alive; see
// [KillMarked] and [KillAbandoned].
func NewMark() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return markOfSelf() + hex.EncodeToString(random[:])
}
