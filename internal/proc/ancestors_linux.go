package proc

// maxAncestors bounds the walk: no chain of real processes is that long.
const maxAncestors = 256

// Ancestors returns a process's parent, its parent's parent, and so on up to the
// first. It is empty for a process that is gone, or is not visible from here.
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
