//go:build !cgo || !linux

package gpu

// BuiltWithNVML reports whether this binary can see GPUs at all, for `gpurun version`.
const BuiltWithNVML = false

func newNVML() API { return noNVML{} }

// noNVML replaces go-nvml where that does not build. Only Init is ever called.
type noNVML struct{ API }

func (noNVML) Init() error { return ErrNotBuilt }
