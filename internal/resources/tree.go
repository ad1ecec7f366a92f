package resources

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tree is what a process and its descendants use.
type Tree struct {
	Processes int
	// Memory is what they do not share with other processes, in bytes.
	Memory uint64
	// Ran is how long their threads have run, and Waited how long they wanted to run
	// and no CPU was free, in seconds.
	Ran, Waited float64
}

// Trees returns the trees below these processes, in the same order.
func (m System) Trees(roots []int) []Tree {
	parents := m.parents()
	owner := make(map[int]int, len(roots))
	for i, pid := range roots {
		owner[pid] = i
	}
	trees := make([]Tree, len(roots))
	for pid := range parents {
		for up, depth := pid, 0; up > 1 && depth < 64; up, depth = parents[up], depth+1 {
			if i, ok := owner[up]; ok {
				m.addTo(&trees[i], pid)
				break
			}
		}
	}
	return trees
}

// parents returns the parent of every process.
func (m System) parents() map[int]int {
	entries, _ := os.ReadDir(filepath.Join("/", m.Root, "proc"))
	parents := make(map[int]int, len(entries))
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat := m.read("proc/" + entry.Name() + "/stat")
		// The name, in parentheses, may contain anything.
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	return parents
}

func (m System) addTo(t *Tree, pid int) {
	dir := "proc/" + strconv.Itoa(pid)
	t.Processes++
	if fields := strings.Fields(m.read(dir + "/statm")); len(fields) > 2 {
		resident, _ := strconv.ParseUint(fields[1], 10, 64)
		shared, _ := strconv.ParseUint(fields[2], 10, 64)
		t.Memory += (resident - min(resident, shared)) * uint64(os.Getpagesize())
	}
	threads, _ := os.ReadDir(filepath.Join("/", m.Root, dir, "task"))
	for _, thread := range threads {
		if fields := strings.Fields(m.read(dir + "/task/" + thread.Name() + "/schedstat")); len(fields) > 1 {
			ran, _ := strconv.ParseFloat(fields[0], 64)
			waited, _ := strconv.ParseFloat(fields[1], 64)
			t.Ran += ran / 1e9
			t.Waited += waited / 1e9
		}
	}
}
