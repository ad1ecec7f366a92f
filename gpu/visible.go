package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

const (
	visibleVariable = "CUDA_VISIBLE_DEVICES"
	orderVariable   = "CUDA_DEVICE_ORDER"
	pciOrder        = "PCI_BUS_ID"
)

// view is what this process may use of a machine, in CUDA's order, with a token
// for each.
type view struct {
	gpus []candidate
	// numbers are what --gpus counts them by: the GPU's index, the same for all
	// instances of one GPU; under an inherited variable the place in it.
	numbers   []int
	inherited bool   // by CUDA_VISIBLE_DEVICES
	value     string // of it
	notes     []string
}

// visible gives each GPU its token: the inherited one where there is one, else
// one of our own.
func (m machine) visible(opts Options) (view, error) {
	value, ok := opts.Env(visibleVariable)
	if !ok {
		return m.ownTokens(opts.PinUUID), checkScheduler(opts.Env)
	}
	order, _ := opts.Env(orderVariable)
	return m.inheritedTokens(value, order == pciOrder)
}

// ownTokens makes the index the token, in PCI order, because some frameworks
// read CUDA_VISIBLE_DEVICES as numbers (vllm#13815). With a GPU that does not
// answer or is in MIG mode, CUDA may or may not count it, and an index could mean
// its neighbour: then, too, UUIDs, which never mean another. All are of one sort,
// since CUDA does not read on where the sort changes.
func (m machine) ownTokens(pinUUID bool) view {
	var v view
	byUUID := m.haveUUIDs() && (pinUUID || !m.countable())
	switch {
	case byUUID && !pinUUID:
		v.notes = append(v.notes, "workers are pinned by UUID, since "+m.uncountable())
	case pinUUID && !byUUID:
		v.notes = append(v.notes, "workers are pinned by index, since a GPU does not tell its UUID")
	}
	for _, g := range m.gpus {
		switch {
		case len(g.instances) > 0:
			for _, instance := range g.instances {
				v.add(instance, g.Index)
			}
			continue
		case byUUID:
			g.Token = g.UUID
		default:
			g.Token, g.PCIOrder = strconv.Itoa(g.Index), true
		}
		v.add(g, g.Index)
	}
	return v
}

func (v *view) add(g candidate, number int) {
	v.gpus, v.numbers = append(v.gpus, g), append(v.numbers, number)
}

// inheritedTokens reads CUDA_VISIBLE_DEVICES as CUDA does (tried with driver
// 580): up to the first entry that means nothing, or that is a number among
// UUIDs or the other way round; a GPU twice before that is an error, cuInit's
// 101. Tokens stay as they are written.
//
// It is stricter in one thing: CUDA reads "0 1" and "0abc" as 0. Nobody means
// that, and here such an entry means nothing.
func (m machine) inheritedTokens(value string, byPCI bool) (view, error) {
	v := view{inherited: true, value: value}
	if strings.TrimSpace(value) == "" {
		return v, fault.New(fault.NoDevice, "%s is set and empty, which hides every GPU: unset it; %s", visibleVariable, cpuHint)
	}
	known := m.countable() && (byPCI || m.oneModel())
	unclear := ""
	_, indices := parseIndex(strings.TrimSpace(strings.Split(value, ",")[0]))
	for entry := range strings.SplitSeq(strings.TrimSuffix(value, ","), ",") {
		entry = strings.TrimSpace(entry)
		_, isIndex := parseIndex(entry)
		g, ok := m.entry(entry, known, len(v.gpus))
		if ok && isIndex != indices {
			v.notes = append(v.notes, visibleVariable+"="+value+" is read up to "+strconv.Quote(entry)+
				": CUDA does not take indices and UUIDs together")
			break
		}
		if !ok {
			v.notes = append(v.notes, visibleVariable+"="+value+" is read up to "+strconv.Quote(entry)+
				", which means no GPU of this machine")
			break
		}
		for _, before := range v.gpus {
			if sameDevice(before.Device, g.Device) {
				return v, fault.New(fault.NoDevice,
					"%s=%s names a GPU twice (%s and %s), which makes CUDA see none: name each once; %s",
					visibleVariable, value, before.Token, entry, cpuHint)
			}
		}
		g.Token = entry
		if isIndex && !known {
			g.Ambiguous = fmt.Sprintf("what %s=%s means is not known, since %s", visibleVariable, value, m.ambiguity())
			unclear = g.Ambiguous
		}
		v.add(g, len(v.gpus))
	}
	if len(v.gpus) == 0 {
		return v, fault.New(fault.NoDevice, "%s=%s names none of the machine's GPUs (%d): correct or unset it; %s",
			visibleVariable, value, len(m.gpus), cpuHint)
	}
	if unclear != "" {
		v.notes = append(v.notes, unclear)
	}
	return v, nil
}

// entry finds what one entry of the variable means; false: nothing, and CUDA
// stops reading there.
//
// What an index means depends on CUDA's order. In PCI order it is NVML's index.
// CUDA's default puts what it takes for the fastest GPU first, by a rule that
// NVML does not tell; among GPUs of one model it comes to PCI order again. Where
// that is not known, the device keeps token and index and loses everything
// else: the wrong CPUs would be slow, and the wrong UUID would have a healthy
// GPU retired in place of a hot one.
func (m machine) entry(entry string, known bool, position int) (candidate, bool) {
	if isMIG(entry) {
		return m.instance(entry, position)
	}
	if strings.HasPrefix(entry, "GPU-") {
		matches := withPrefix(m.gpus, entry)
		if len(matches) != 1 || entry == "GPU-" {
			return candidate{}, false // an ambiguous one is none to CUDA
		}
		return m.gpus[matches[0]], true
	}
	i, ok := parseIndex(entry)
	if !ok || i >= len(m.gpus) {
		return candidate{}, false
	}
	if known {
		return m.gpus[i], true
	}
	return candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}, gone: m.gpus[i].gone}, true
}

// instance finds a MIG instance by its name. Where NVML lists none, as in some
// containers, the name is taken on trust: CUDA will say whether it means one.
func (m machine) instance(name string, position int) (candidate, bool) {
	listed := m.instances()
	if len(listed) == 0 {
		return candidate{Device: migDevice(name, position)}, true
	}
	found := named(listed, name)
	if len(found) != 1 {
		return candidate{}, false
	}
	return listed[found[0]], true
}

// ambiguity says why an index in the variable could mean more than one GPU, and
// what to set.
func (m machine) ambiguity() string {
	const uuids = "name UUIDs in " + visibleVariable + " (nvidia-smi -L lists them)"
	if why := m.uncountable(); why != "" {
		return why + ": " + uuids
	}
	return "CUDA orders GPUs of different models by a rule of its own: set " + orderVariable + "=" + pciOrder + ", or " + uuids
}

// haveUUIDs says that every GPU that can be used has told its UUID.
func (m machine) haveUUIDs() bool {
	for _, g := range m.gpus {
		if g.gone == nil && !g.mig && g.UUID == "" {
			return false
		}
	}
	return true
}

// oneModel says that all GPUs are of one and the same model.
func (m machine) oneModel() bool {
	for _, g := range m.gpus {
		if g.Name != m.gpus[0].Name || (g.Name == unknownName && len(m.gpus) > 1) {
			return false
		}
	}
	return true
}

// sameDevice compares by UUID. An index whose meaning is not known has none,
// and can be compared only with another such.
func sameDevice(a, b Device) bool {
	if a.UUID != "" || b.UUID != "" {
		return a.UUID == b.UUID
	}
	return a.Index == b.Index
}

// named returns the positions of what has this name: the older name of a MIG
// instance, a whole UUID, or a UUID that begins like this.
func named(gpus []candidate, name string) []int {
	for i, g := range gpus {
		if strings.EqualFold(g.UUID, name) || g.alias != "" && strings.EqualFold(g.alias, name) {
			return []int{i}
		}
	}
	return withPrefix(gpus, name)
}

// withPrefix returns the positions of the GPUs whose UUID begins like this.
func withPrefix(gpus []candidate, prefix string) []int {
	var found []int
	for i, g := range gpus {
		if len(g.UUID) >= len(prefix) && strings.EqualFold(g.UUID[:len(prefix)], prefix) {
			found = append(found, i)
		}
	}
	return found
}
