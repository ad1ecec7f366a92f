package gputest

import (
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/gpu"
)

// errNotSupported is returned for what a device does not have.
var errNotSupported = errors.New("not supported")

// handle is a card or one of its instances.
type handle struct {
	machine  *Machine
	index    int
	instance int // -1: the card
}

// lost returns gpu.ErrLost for a lost card. The caller must hold the machine's lock.
func (h handle) lost() error {
	if h.machine.cards[h.index].Lost {
		return gpu.ErrLost
	}
	return nil
}

// with reads the card in one driver call. A call that hung returns what was true when it
// was made.
func (h handle) with(look func(*Card)) error {
	h.machine.enter()
	defer h.machine.mu.Unlock()
	card := h.machine.cards[h.index]
	before := *card
	if h.machine.await(h.index) {
		card = &before
	}
	if err := h.lost(); err != nil {
		return err
	}
	look(card)
	return nil
}

// UUID is part of gpu.Handle.
func (h handle) UUID() (uuid string, err error) {
	var failed error
	err = h.with(func(c *Card) {
		if uuid = c.UUID; h.instance >= 0 {
			uuid = c.Instances[h.instance].UUID
		}
		failed = c.UUIDError
	})
	if err = errors.Join(err, failed); err != nil {
		return "", err
	}
	return uuid, nil
}

// Name is part of gpu.Handle.
func (h handle) Name() (name string, err error) {
	err = h.with(func(c *Card) {
		if name = c.Name; h.instance >= 0 {
			name += fmt.Sprintf(" MIG %dg", h.instance+1)
		}
	})
	return name, err
}

// PCIBusID is part of gpu.Handle.
func (h handle) PCIBusID() (id string, err error) {
	err = h.with(func(*Card) { id = fmt.Sprintf("00000000:%02X:00.0", 0x10+h.index) })
	return id, err
}

// CPUs is part of gpu.Handle.
func (h handle) CPUs() ([]int, error) { return nil, errNotSupported }

// Sense is part of gpu.Handle.
func (h handle) Sense(sample *gpu.Sample) error {
	return h.with(func(c *Card) {
		at := sample.Time
		if h.instance < 0 {
			*sample = c.Sample
		} else {
			*sample = gpu.Sample{Memory: gpu.Some(c.Instances[h.instance].Memory), Processes: gpu.Some([]gpu.Process{})}
		}
		sample.Time = at
	})
}

// Memory is part of gpu.Handle.
func (h handle) Memory() (memory gpu.Optional[gpu.Memory], err error) {
	err = h.with(func(c *Card) {
		if memory = c.Sample.Memory; h.instance >= 0 {
			memory = gpu.Some(c.Instances[h.instance].Memory)
		}
	})
	return memory, err
}

// Instances is part of gpu.Handle.
func (h handle) Instances() (enabled bool, list []gpu.Instance, err error) {
	err = h.with(func(c *Card) {
		enabled = c.MIG
		for i := range c.Instances {
			list = append(list, gpu.Instance{Handle: handle{h.machine, h.index, i}, Index: i, GPUInstance: 7 + i})
		}
	})
	return enabled, list, err
}
