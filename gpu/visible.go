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

// view is the devices of a machine that this process may use, in CUDA's order, each with
// a token.
type view struct {
	gpus []candidate
	// numbers are the indices that --gpus uses: the GPU's index, shared by all its
	// instances, or, with an inherited variable, the position in it.
	numbers   []int
	inherited bool   // from CUDA_VISIBLE_DEVICES
	value     string // of that variable
	notes     []string
}

// visible assigns each GPU its token: the inherited one if there is one, else one that
// gpurun chooses.
func (m machine) visible(opts Options) (view, error) {
	value, ok := opts.Env(visibleVariable)
	if !ok {
		return m.ownTokens(opts.PinUUID), checkScheduler(opts.Env)
	}
	order, _ := opts.Env(orderVariable)
	return m.inheritedTokens(value, order == pciOrder)
}

// ownTokens uses the index in PCI order as the token, because some frameworks parse
// CUDA_VISIBLE_DEVICES as numbers (vllm#13815). If a GPU does not answer or is in MIG
// mode, CUDA may or may not count it, and an index could mean its neighbor; so it could if an
// MPS daemon sees only some of the GPUs, which it numbers from 0. Then it uses UUIDs, which are unambiguous. It never mixes both, since CUDA stops reading where the
// kind of token changes.
func (m machine) ownTokens(pinUUID bool) view {
	var v view
	why := m.uncountable()
	if m.mps != "" && len(m.gpus) > 1 {
		why = "the MPS daemon may number the GPUs differently"
	}
	byUUID := m.haveUUIDs() && (pinUUID || why != "")
	switch {
	case byUUID && !pinUUID:
		v.notes = append(v.notes, "workers are pinned by UUID, because "+why)
	case pinUUID && !byUUID:
		v.notes = append(v.notes, "workers are pinned by index, because a GPU does not report its UUID")
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

// inheritedTokens parses CUDA_VISIBLE_DEVICES as CUDA does (checked with driver 580): up
// to the first entry that matches nothing, or that is a number among UUIDs or the other
// way around. A duplicate GPU before that is an error, as in cuInit (101). Tokens are
// kept as written.
//
// It is stricter in one case: CUDA reads "0 1" and "0abc" as 0, which is hardly intended.
// Here such an entry matches nothing.
func (m machine) inheritedTokens(value string, byPCI bool) (view, error) {
	v := view{inherited: true, value: value}
	if strings.TrimSpace(value) == "" {
		return v, fault.GPUsHidden.New("%s is set but empty, which hides every GPU: unset it", visibleVariable)
	}
	known := m.uncountable() == "" && (byPCI || m.oneModel())
	unclear := ""
	_, indices := parseIndex(strings.TrimSpace(strings.Split(value, ",")[0]))
	for entry := range strings.SplitSeq(strings.TrimSuffix(value, ","), ",") {
		entry = strings.TrimSpace(entry)
		_, isIndex := parseIndex(entry)
		g, ok := m.entry(entry, known, len(v.gpus))
		if !ok || isIndex != indices {
			why := ", which matches no GPU of this machine"
			if ok {
				why = ": CUDA does not accept indices and UUIDs together"
			}
			v.notes = append(v.notes, fmt.Sprintf("%s=%s is only read up to %q%s", visibleVariable, value, entry, why))
			break
		}
		for _, before := range v.gpus {
			if sameDevice(before.Device, g.Device) {
				return v, fault.GPUsHidden.New("%s=%s names a GPU twice (%s and %s), which makes CUDA see none: name each once",
					visibleVariable, value, before.Token, entry)
			}
		}
		g.Token = entry
		if isIndex && !known {
			g.Ambiguous = fmt.Sprintf("which GPUs %s=%s means is unclear, because %s", visibleVariable, value, m.ambiguity())
			unclear = g.Ambiguous
		}
		v.add(g, len(v.gpus))
	}
	if len(v.gpus) == 0 {
		return v, fault.GPUsHidden.New("%s=%s names none of the machine's GPUs (%d): correct or unset it",
			visibleVariable, value, len(m.gpus))
	}
	if unclear != "" {
		v.notes = append(v.notes, unclear)
	}
	return v, nil
}

// entry finds the device that one entry of the variable means; false if there is none,
// where CUDA stops reading.
//
// The meaning of an index depends on CUDA's order. In PCI order it is NVML's index.
// CUDA's default order puts the GPU it considers fastest first, by a rule that NVML does
// not expose; among GPUs of one model that is PCI order again. If the meaning is unknown,
// the device keeps only its token and index: wrong CPUs would be slow, and a wrong UUID
// would retire a healthy GPU in place of a hot one.
func (m machine) entry(entry string, known bool, position int) (candidate, bool) {
	if isMIG(entry) {
		return m.instance(entry, position)
	}
	if strings.HasPrefix(entry, "GPU-") {
		matches := withPrefix(m.gpus, entry)
		if len(matches) != 1 || entry == "GPU-" {
			return candidate{}, false // CUDA ignores an ambiguous prefix
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
	return candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}, unusable: m.gpus[i].unusable}, true
}

// instance finds a MIG instance by its name. If NVML lists none, as in some containers,
// the name is trusted: CUDA will reject a wrong one.
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

// ambiguity explains why an index in the variable could mean more than one GPU, and what
// to set.
func (m machine) ambiguity() string {
	const uuids = "name UUIDs in " + visibleVariable + " (nvidia-smi -L lists them)"
	if why := m.uncountable(); why != "" {
		return why + ": " + uuids
	}
	return "CUDA orders GPUs of different models by its own rule: set " + orderVariable + "=" + pciOrder + ", or " + uuids
}

// haveUUIDs reports whether every usable GPU has a known UUID.
func (m machine) haveUUIDs() bool {
	for _, g := range m.gpus {
		if g.unusable == nil && !g.mig && g.UUID == "" {
			return false
		}
	}
	return true
}

// oneModel reports whether all GPUs are of the same model.
func (m machine) oneModel() bool {
	for _, g := range m.gpus {
		if g.Name != m.gpus[0].Name || (g.Name == unknownName && len(m.gpus) > 1) {
			return false
		}
	}
	return true
}

// sameDevice compares by UUID. An index of unknown meaning has none and can only be
// compared with another one.
func sameDevice(a, b Device) bool {
	if a.UUID != "" || b.UUID != "" {
		return a.UUID == b.UUID
	}
	return a.Index == b.Index
}

// named returns the positions of the devices with this name: a MIG name in the old
// format, a UUID, or a UUID prefix.
func named(gpus []candidate, name string) []int {
	for i, g := range gpus {
		if strings.EqualFold(g.UUID, name) || g.alias != "" && strings.EqualFold(g.alias, name) {
			return []int{i}
		}
	}
	return withPrefix(gpus, name)
}

// withPrefix returns the positions of the GPUs with this UUID prefix.
func withPrefix(gpus []candidate, prefix string) []int {
	var found []int
	for i, g := range gpus {
		if hasPrefix(g.UUID, prefix) {
			found = append(found, i)
		}
	}
	return found
}

// slurmVariables show that a Slurm job has GPUs, the most specific first.
var slurmVariables = []string{
	"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
	"SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
}

// checkScheduler rejects a Slurm job that has GPUs but no CUDA_VISIBLE_DEVICES, as
// happened after a restart of Slurm's controller: it would use GPUs of other jobs.
func checkScheduler(env func(string) (string, bool)) error {
	if name, value := slurmGPUs(env); inSlurm(env) && name != "" {
		return fault.GPUsHidden.New("this Slurm job has GPUs (%s=%s), but %s is not set, so gpurun cannot tell which of the node's GPUs belong to it: start gpurun with srun, or set %s",
			name, value, visibleVariable, visibleVariable)
	}
	return nil
}

// withoutGPUs reports whether a scheduler has given this job no GPUs. On nodes that do not confine
// jobs to their devices, the driver shows the GPUs of other jobs. Slurm hides them with an empty
// variable, with a word that matches none, or not at all.
func withoutGPUs(env func(string) (string, bool)) bool {
	name, _ := slurmGPUs(env)
	visible, _ := env(visibleVariable)
	visible = strings.TrimSpace(visible)
	return inSlurm(env) && name == "" && (visible == "" || visible == "NoDevFiles")
}

func inSlurm(env func(string) (string, bool)) bool {
	id, _ := env("SLURM_JOB_ID")
	return id != ""
}

// slurmGPUs returns the variable that shows that a Slurm job has GPUs; "" for none.
func slurmGPUs(env func(string) (string, bool)) (name, value string) {
	for _, name := range slurmVariables {
		if value, _ := env(name); value != "" && value != "0" {
			return name, value
		}
	}
	return "", ""
}
