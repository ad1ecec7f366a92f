package resources

import (
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Cores returns how many cores this process may use, rounded up.
func (m System) Cores() int {
	cores := float64(len(m.allowed()))
	if cores == 0 {
		cores = float64(runtime.NumCPU())
	}
	for _, g := range m.groups("cpu") {
		if quota, ok := m.quota(g); ok {
			cores = min(cores, quota)
		}
	}
	return max(1, int(math.Ceil(cores-1e-6)))
}

// allowed returns the CPUs of this process's affinity; none if unknown.
func (m System) allowed() map[string]bool {
	cpus := make(map[string]bool)
	for line := range strings.Lines(m.read("proc/self/status")) {
		list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
			from, to, isRange := strings.Cut(part, "-")
			if !isRange {
				to = from
			}
			low, err1 := strconv.Atoi(from)
			high, err2 := strconv.Atoi(to)
			for cpu := low; err1 == nil && err2 == nil && cpu <= high; cpu++ {
				cpus["cpu"+strconv.Itoa(cpu)] = true
			}
		}
	}
	return cpus
}

// group is a control group: its folder and the version of its files.
type group struct {
	path string
	v2   bool
}

// groups returns the control groups of this process that limit a resource, cpu or
// memory, from the innermost to the root.
func (m System) groups(resource string) (list []group) {
	for line := range strings.Lines(m.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		switch controllers := strings.Split(parts[1], ","); {
		case parts[1] == "":
			list = append(list, m.ancestors("sys/fs/cgroup", parts[2], true)...)
		case slices.Contains(controllers, resource):
			list = append(list, m.ancestors("sys/fs/cgroup/"+parts[1], parts[2], false)...)
			list = append(list, m.ancestors("sys/fs/cgroup/"+resource, parts[2], false)...)
		}
	}
	return list
}

// ancestors returns a group and those above it. In a container the path may be the
// host's, which does not exist there: then only the mounted root counts.
func (m System) ancestors(mount, path string, v2 bool) (list []group) {
	for path = strings.Trim(path, "/"); path != ""; {
		list = append(list, group{mount + "/" + path, v2})
		cut := strings.LastIndexByte(path, '/')
		path = path[:max(cut, 0)]
	}
	return append(list, group{mount, v2})
}

// quota returns the cores that a group may use.
func (m System) quota(g group) (cores float64, limited bool) {
	if g.v2 {
		fields := strings.Fields(m.read(g.path + "/cpu.max"))
		if len(fields) < 2 {
			return 0, false
		}
		quota, err1 := strconv.ParseFloat(fields[0], 64)
		period, err2 := strconv.ParseFloat(fields[1], 64)
		return quota / period, err1 == nil && err2 == nil && period > 0 && quota > 0
	}
	quota, ok1 := m.number(g.path + "/cpu.cfs_quota_us") // -1 without a limit
	period, ok2 := m.number(g.path + "/cpu.cfs_period_us")
	if !ok1 || !ok2 || period == 0 || quota == 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}

// used returns the CPU seconds that a group has used.
func (m System) used(g group) (seconds float64, ok bool) {
	if g.v2 {
		n, ok := m.member(g.path+"/cpu.stat", "usage_usec")
		return float64(n) / 1e6, ok
	}
	n, ok := m.number(g.path + "/cpuacct.usage")
	return float64(n) / 1e9, ok
}

// Ticks returns how long CPUs have been idle since the machine started, and how long they have
// run in all. Their names are cpu0, cpu1, …; cpu is all together.
func (m System) Ticks(of func(cpu string) bool) (idle, total float64) {
	for line := range strings.Lines(m.read("proc/stat")) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !of(fields[0]) {
			continue
		}
		for i, field := range fields[1:min(9, len(fields))] { // guest time is in user time
			ticks, _ := strconv.ParseFloat(field, 64)
			total += ticks
			if i == 3 || i == 4 { // idle, iowait
				idle += ticks
			}
		}
	}
	return idle, total
}
