package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// pick returns the selected ones of v, in the order they were asked for: groups
// of several GPUs are made of neighbours in that order. Every error is a
// fault.Usage that says what there is.
func (s Selection) pick(v view) ([]candidate, error) {
	if len(s.terms) == 0 {
		return v.gpus, nil
	}
	var picked []candidate
	taken := map[int]string{} // position in v to the term that took it
	take := func(position int, t term) error {
		if before, ok := taken[position]; ok {
			return fault.New(fault.Usage, "--gpus %s: %s and %s are the same GPU: name it once", s, before, t)
		}
		taken[position] = t.String()
		picked = append(picked, v.gpus[position])
		return nil
	}
	for _, t := range s.terms {
		positions, err := v.find(t)
		if err != nil {
			return nil, err
		}
		if positions == nil { // a MIG instance nobody has listed
			picked = append(picked, candidate{Device: migDevice(t.name, len(picked))})
		}
		for _, position := range positions {
			if err := take(position, t); err != nil {
				return nil, err
			}
		}
	}
	return picked, nil
}

// find returns the positions in v that t means. Nil without an error is a MIG
// instance that is to be taken on trust: there is no list to look it up in yet.
func (v view) find(t term) ([]int, error) {
	switch {
	case t.name == "":
		return v.findRange(t)
	case isMIG(t.name):
		i := slices.IndexFunc(v.gpus, func(g candidate) bool { return g.Token == t.name })
		if i >= 0 {
			return []int{i}, nil
		}
		if v.inherited {
			return nil, fault.New(fault.Usage, "%s is not visible: %s", t.name, v.describe())
		}
		return nil, nil
	}
	switch found := withPrefix(v.gpus, t.name); len(found) {
	case 1:
		return found, nil
	case 0:
		return nil, fault.New(fault.Usage, "no GPU has the UUID %s: %s", t.name, v.describeUUIDs())
	default:
		return nil, fault.New(fault.Usage, "%s is the beginning of %d UUIDs, write more of it: %s", t.name, len(found), v.describeUUIDs())
	}
}

func (v view) findRange(t term) ([]int, error) {
	if t.high >= len(v.gpus) {
		return nil, fault.New(fault.Usage, "GPU %d does not exist: %s", max(t.low, len(v.gpus)), v.describe())
	}
	positions := make([]int, 0, t.high-t.low+1)
	for i := t.low; i <= t.high; i++ {
		positions = append(positions, i)
	}
	return positions, nil
}

// describe says what there is to choose from.
func (v view) describe() string {
	numbers := "0"
	if len(v.gpus) > 1 {
		numbers = "0-" + strconv.Itoa(len(v.gpus)-1)
	}
	if v.inherited {
		return fmt.Sprintf("%s=%s leaves %d to choose from (%s, in that order)", visibleVariable, v.value, len(v.gpus), numbers)
	}
	return fmt.Sprintf("this machine has %d (%s)", len(v.gpus), numbers)
}

func (v view) describeUUIDs() string {
	var list []string
	for i, g := range v.gpus {
		if g.UUID != "" {
			list = append(list, fmt.Sprintf("%d is %s", i, g.UUID))
		}
	}
	text := strings.Join(append([]string{v.describe()}, list...), ", ")
	return strings.Join(append([]string{text}, v.notes...), "; ")
}
