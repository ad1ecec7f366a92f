package parallel

import (
	"context"
	"errors"
	"testing"
)

// TestMemory: groups of rows wait for memory, but not the first one; one that needs too
// much alone fails.
func TestMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := NewMemory(ctx, "rows", 100)
	first, second, third := m.Join(), m.Join(), m.Join()
	if err := errors.Join(second.Add(60), first.Add(90), first.Add(-30), first.Add(40)); err != nil {
		t.Fatal(err)
	}
	if first.Add(1) == nil {
		t.Error("a group takes more than all may take")
	}
	ended := make(chan error)
	go func() { ended <- second.Add(20) }()
	select {
	case err := <-ended:
		t.Fatalf("the second group does not wait: %v", err)
	default:
	}
	first.Leave()
	if err := <-ended; err != nil || m.used != 80 {
		t.Errorf("%d bytes are used, %v", m.used, err)
	}
	go func() { ended <- third.Add(30) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was canceled returns %v", err)
	}
}
