package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

// pick returns the selected devices of v in the order of the selection, since groups of
// GPUs are formed from neighbors in that order. Every error is a fault.Usage that lists
// what exists.
func (s Selection) pick(v view) ([]candidate, error) {
	if len(s.terms) == 0 {
		return v.gpus, nil
	}
	var picked []candidate
	taken := map[int]string{} // position in v to the term that took it
	for _, t := range s.terms {
		positions, err := v.find(t)
		if err != nil && len(s.terms) == 1 && t.low == t.high && t.low == v.count() {
			return nil, fault.UnknownDevice.New("%w; an index is not a number of GPUs: to use all %d, select all", err, t.low)
		}
		if err != nil {
			return nil, err
		}
		if positions == nil { // a MIG instance that NVML does not list
			picked = append(picked, candidate{Device: migDevice(t.name, len(picked))})
		}
		for _, position := range positions {
			if before, ok := taken[position]; ok {
				return nil, fault.UnknownDevice.New("%s and %s are the same GPU: name it once", before, t)
			}
			taken[position] = t.String()
			picked = append(picked, v.gpus[position])
		}
	}
	return picked, nil
}

// find returns the positions in v that match t. Nil without an error is a MIG instance
// that must be trusted, because NVML lists none.
func (v view) find(t term) ([]int, error) {
	switch {
	case t.part > 0:
		return v.findPart(t)
	case t.name == "":
		return v.findRange(t)
	}
	what := "no GPU has the UUID "
	if isMIG(t.name) {
		what = "no MIG instance has the name "
		if !v.inherited && !slices.ContainsFunc(v.gpus, func(g candidate) bool { return isMIG(g.UUID) }) {
			return nil, nil
		}
	}
	found := named(v.gpus, t.name)
	if len(found) == 0 && !isMIG(t.name) {
		found = v.partsOf(t.name)
		if len(found) > 0 && v.gpus[found[0]].Parent.UUID == v.gpus[found[len(found)-1]].Parent.UUID {
			return found, nil
		}
	}
	switch len(found) {
	case 1:
		return found, nil
	case 0:
		if meant := v.nearest(t.name); meant != "" {
			return nil, fault.UnknownDevice.New("%s%s: did you mean %s? (nvidia-smi -L lists them)", what, t.name, meant)
		}
		return nil, fault.UnknownDevice.New("%s%s: %s", what, t.name, v.describeUUIDs())
	default:
		return nil, fault.UnknownDevice.New("%s is a prefix of %d UUIDs, write more of it: %s", t.name, len(found), v.describeUUIDs())
	}
}

// partsOf returns the instances of the GPUs in MIG mode whose UUID has this prefix:
// selecting such a GPU selects all its instances.
func (v view) partsOf(prefix string) []int {
	var found []int
	for i, g := range v.gpus {
		if p := g.Parent; p != nil && hasPrefix(p.UUID, prefix) {
			found = append(found, i)
		}
	}
	return found
}

func (v view) findRange(t term) ([]int, error) {
	if count := v.count(); t.high >= count {
		return nil, fault.UnknownDevice.New("GPU %d does not exist: %s", max(t.low, count), v.describe())
	}
	var positions []int
	for i, number := range v.numbers {
		if t.low <= number && number <= t.high {
			positions = append(positions, i)
		}
	}
	return positions, nil
}

// findPart finds a MIG instance by its index in the machine.
func (v view) findPart(t term) ([]int, error) {
	var parts []string
	for i, g := range v.gpus {
		if g.Parent == nil || g.Parent.Index != t.low {
			continue
		}
		if g.Index == t.part-1 && !v.inherited {
			return []int{i}, nil
		}
		parts = append(parts, g.ID())
	}
	switch {
	case v.inherited:
		return nil, fault.MIG.New("%s names a MIG instance by its index in the machine, but %s: use a position there, or a UUID", t, v.describe())
	case len(parts) > 0:
		return nil, fault.MIG.New("GPU %d has no MIG instance %d: it has %s", t.low, t.part-1, Enumerate(parts))
	case t.low < v.count():
		return nil, fault.MIG.New("GPU %d is not in MIG mode, so there is no instance %s (for GPUs %d and %d write %d,%d)", t.low, t, t.low, t.part-1, t.low, t.part-1)
	}
	return v.findRange(t)
}

// count is one more than the highest number.
func (v view) count() int { return v.numbers[len(v.numbers)-1] + 1 }

// describe states what there is to choose from.
func (v view) describe() string {
	numbers, count, noun := "0", v.count(), "GPU"
	if count > 1 {
		numbers, noun = "0-"+strconv.Itoa(count-1), "GPUs"
	}
	if v.inherited {
		return fmt.Sprintf("%s=%s leaves %d to choose from (%s, in that order)", visibleVariable, v.value, count, numbers)
	}
	return fmt.Sprintf("this machine has %d %s (%s)", count, noun, numbers)
}

// describeUUIDs is describe with as many UUIDs as fit into a message.
func (v view) describeUUIDs() string {
	const shown = 8
	list := []string{v.describe()}
	for i, g := range v.gpus {
		switch {
		case len(list) > shown:
			list = append(list, "…; nvidia-smi -L lists all")
		case g.UUID != "" && v.inherited:
			list = append(list, fmt.Sprintf("%d is %s", v.numbers[i], g.UUID))
		case g.UUID != "":
			list = append(list, fmt.Sprintf("%s is %s", g.ID(), g.UUID))
		}
		if len(list) > shown+1 {
			break
		}
	}
	text := strings.Join(list, ", ")
	if v.inherited { // explain why some are missing
		text = strings.Join(append([]string{text}, v.notes...), "; ")
	}
	return text
}

// nearest guesses which UUID was meant by a complete one that does not exist.
func (v view) nearest(name string) string {
	if len(name) < len("GPU-00000000-0000-0000-0000") {
		return ""
	}
	var uuids []string
	for _, g := range v.gpus {
		uuids = append(uuids, g.UUID)
	}
	const typos = 4
	return nearest.Of(name, uuids, typos)
}
