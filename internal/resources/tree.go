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

// Processes are the processes of a host at one moment.
type Processes struct {
	system  System
	parents map[int]int
}

// Children returns the children of a process.
func (p Processes) Children(of int) (list []int) {
	for pid, parent := range p.parents {
		if parent == of {
			list = append(list, pid)
		}
	}
	return list
}

// Trees returns the trees below these processes, in the same order.
func (p Processes) Trees(roots []int) []Tree {
	parents := p.parents
	owner := make(map[int]int, len(roots))
	for i, pid := range roots {
		owner[pid] = i
	}
	trees := make([]Tree, len(roots))
	for pid := range parents {
		for up, depth := pid, 0; up > 1 && depth < 64; up, depth = parents[up], depth+1 {
			if i, ok := owner[up]; ok {
				p.system.addTo(&trees[i], pid)
				break
			}
		}
	}
	return trees
}

// Processes returns the processes that run now.
func (m System) Processes() Processes {
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
	return Processes{m, parents}
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
