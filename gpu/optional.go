package gpu

import (
	"encoding/json"
	"fmt"
)

// Optional is a value that a card or driver may not report. Its zero value is "not
// supported", which is not the same as 0.
type Optional[T any] struct {
	value T
	known bool
}

// Some returns a known value.
func Some[T any](value T) Optional[T] { return Optional[T]{value, true} }

// Get returns the value and whether it is known.
func (o Optional[T]) Get() (T, bool) { return o.value, o.known }

// Or returns the value, or other if it is unknown.
func (o Optional[T]) Or(other T) T {
	if o.known {
		return o.value
	}
	return other
}

// IsZero lets JSON's omitzero omit unknown values.
func (o Optional[T]) IsZero() bool { return !o.known }

// String returns the value for display, "not supported" if it is unknown.
func (o Optional[T]) String() string {
	if !o.known {
		return "not supported"
	}
	return fmt.Sprint(o.value)
}

// MarshalJSON writes the value, or null if it is unknown.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.known {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{known: string(data) != "null"}
	return json.Unmarshal(data, &o.value)
}
