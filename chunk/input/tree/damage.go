package tree

import (
	"errors"
	"fmt"
)

// damage is what is wrong with a file. Functions that decode panic with it.
type damage struct{ error }

// Fail ends decoding.
func Fail(format string, args ...any) { panic(damage{fmt.Errorf(format, args...)}) }

// Recovered turns a panic into an error: whatever a damaged file causes costs only the file.
func Recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case damage:
		*err = r.error
	case error:
		*err = fmt.Errorf("the file is damaged: %w", r)
	default:
		*err = errors.New(fmt.Sprint("the file is damaged: ", r))
	}
}
