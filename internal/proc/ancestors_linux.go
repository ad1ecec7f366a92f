package proc

// maxAncestors limits the walk: no real chain of processes is that long.
const maxAncestors = 256

// Ancestors returns a process's parent, its parent's parent, and so on up to the first. It
// returns nothing for a process that has exited or is not visible from here.
func Ancestors(pid int) []int {
	var chain []int
	for len(chain) < maxAncestors {
		state, parent := stat(pid)
		if state == 0 || parent <= 0 {
			return chain
		}
		chain = append(chain, parent)
		pid = parent
	}
	return chain
}
