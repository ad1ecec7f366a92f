package resources

// unlimited is above every limit that means anything; version 1 writes a huge number for
// "no limit".
const unlimited = 1 << 62

// Available returns how many bytes of memory this process and its children can still
// use without swapping or exceeding a limit; 0 if unknown.
func (m System) Available() uint64 {
	available, ok := m.member("proc/meminfo", "MemAvailable:")
	if available <<= 10; !ok {
		available = unlimited
	}
	for _, g := range m.groups("memory") {
		if limit, used, ok := m.memory(g); ok {
			available = min(available, max(1, limit-min(limit, used)))
		}
	}
	if available >= unlimited {
		return 0
	}
	return available
}

// memory returns a group's limit and how much of it is used, without the page cache that
// the kernel would drop.
func (m System) memory(g group) (limit, used uint64, limited bool) {
	max, current, stat, cache := "/memory.max", "/memory.current", "/memory.stat", "inactive_file"
	if !g.v2 {
		max, current, cache = "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"
	}
	limit, ok1 := m.number(g.path + max)
	used, ok2 := m.number(g.path + current)
	dropped, _ := m.member(g.path+stat, cache)
	return limit, used - min(used, dropped), ok1 && ok2 && limit < unlimited
}
