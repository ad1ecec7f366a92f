package proc

import (
	"crypto/rand"
	"encoding/hex"
)

// NewMark returns a value, different each time, for an environment variable by which the
// descendants of this process can be found, and by which it can be told whether this
// process still lives: see [KillMarked] and [KillAbandoned].
func NewMark() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return markOfSelf() + hex.EncodeToString(random[:])
}
