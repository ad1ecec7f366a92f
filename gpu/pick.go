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
// instance that is to be taken on trust: there is no list to look it up in.
func (v view) find(t term) ([]int, error) {
	if t.name == "" {
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
		return nil, fault.New(fault.Usage, "%s%s: %s", what, t.name, v.describeUUIDs())
	default:
		return nil, fault.New(fault.Usage, "%s is the beginning of %d UUIDs, write more of it: %s", t.name, len(found), v.describeUUIDs())
	}
}

// partsOf returns the instances of the GPUs in MIG mode whose UUID begins like
// this: such a GPU is all of its instances.
func (v view) partsOf(prefix string) []int {
	var found []int
	for i, g := range v.gpus {
		if p := g.Parent; p != nil && len(p.UUID) >= len(prefix) && strings.EqualFold(p.UUID[:len(prefix)], prefix) {
			found = append(found, i)
		}
	}
	return found
}

func (v view) findRange(t term) ([]int, error) {
	if count := v.count(); t.high >= count {
		return nil, fault.New(fault.Usage, "GPU %d does not exist: %s", max(t.low, count), v.describe())
	}
	var positions []int
	for i, number := range v.numbers {
		if t.low <= number && number <= t.high {
			positions = append(positions, i)
		}
	}
	return positions, nil
}

// count is how many numbers there are.
func (v view) count() int { return v.numbers[len(v.numbers)-1] + 1 }

// describe says what there is to choose from.
func (v view) describe() string {
	numbers, count := "0", v.count()
	if count > 1 {
		numbers = "0-" + strconv.Itoa(count-1)
	}
	if v.inherited {
		return fmt.Sprintf("%s=%s leaves %d to choose from (%s, in that order)", visibleVariable, v.value, count, numbers)
	}
	return fmt.Sprintf("this machine has %d (%s)", count, numbers)
}

func (v view) describeUUIDs() string {
	var list []string
	for i, g := range v.gpus {
		if g.UUID != "" {
			list = append(list, fmt.Sprintf("%d is %s", v.numbers[i], g.UUID))
		}
	}
	text := strings.Join(append([]string{v.describe()}, list...), ", ")
	return strings.Join(append([]string{text}, v.notes...), "; ")
}
