package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// glibc is a version of the C library: its major and minor number.
type glibc [2]int

func (g glibc) less(other glibc) bool { return slices.Compare(g[:], other[:]) < 0 }

// promised is the version for programs that need no newer one: what torch supports, too.
var promised = glibc{2, 28}

var machines = map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}

// platform returns the tag of the machines that can run a program. It refuses a program that
// needs a newer glibc than newest.
func platform(program []byte, newest glibc) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	machine, known := machines[file.Machine]
	if !known {
		return "", fmt.Errorf("no wheels for %s", file.Machine)
	}
	if err := startsAnywhere(file); err != nil {
		return "", err
	}
	need, err := needed(file)
	if err != nil {
		return "", err
	}
	if newest.less(need) {
		return "", fmt.Errorf("it needs glibc %d.%d; build it with the compilers of scripts/sysroot.sh", need[0], need[1])
	}
	return fmt.Sprintf("manylinux_%d_%d_%s", need[0], need[1], machine), nil
}

// startsAnywhere refuses a program that a machine without the NVIDIA driver cannot start: one that
// needs its library, or in which the loader looks up NVML's functions at the start. It also
// refuses one with other functions that no library has: the linker has to accept NVML's, so it
// accepts those, and the program fails when it calls them.
func startsAnywhere(file *elf.File) error {
	libraries, err := file.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return err
	}
	for _, library := range libraries {
		if strings.Contains(library, "nvidia") || strings.HasPrefix(library, "libcuda") {
			return fmt.Errorf("it needs %s, which only machines with an NVIDIA driver have", library)
		}
	}
	imported, err := file.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return err
	}
	for _, symbol := range imported {
		switch isNVML := strings.HasPrefix(symbol.Name, "nvml"); {
		case isNVML && bindsNow(file):
			return fmt.Errorf("the loader would look up %s when the program starts; link it with -Wl,-z,lazy", symbol.Name)
		case !isNVML && symbol.Version == "":
			return fmt.Errorf("no library has %s: it was compiled with headers of another glibc than it was linked with", symbol.Name)
		}
	}
	return nil
}

// bindsNow reports whether the loader looks up all functions before the program starts.
func bindsNow(file *elf.File) bool {
	if now, err := file.DynValue(elf.DT_BIND_NOW); err == nil && len(now) > 0 {
		return true
	}
	flags, _ := file.DynValue(elf.DT_FLAGS)
	flags1, _ := file.DynValue(elf.DT_FLAGS_1)
	return len(flags) > 0 && elf.DynFlag(flags[0])&elf.DF_BIND_NOW != 0 || len(flags1) > 0 && elf.DynFlag1(flags1[0])&elf.DF_1_NOW != 0
}

// needed returns the version of glibc that a program needs. A static program needs none.
func needed(file *elf.File) (glibc, error) {
	need := promised
	libraries, err := file.DynamicVersionNeeds()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return need, fmt.Errorf("read version needs: %w", err)
	}
	for _, library := range libraries {
		for _, dependency := range library.Needs {
			version, isGlibc := strings.CutPrefix(dependency.Dep, "GLIBC_")
			if !isGlibc {
				continue
			}
			one, err := parseGlibc(version)
			if err != nil {
				return need, fmt.Errorf("%s needs %s: %w", library.Name, dependency.Dep, err)
			}
			if need.less(one) {
				need = one
			}
		}
	}
	return need, nil
}

func parseGlibc(text string) (g glibc, err error) {
	_, err = fmt.Sscanf(text, "%d.%d", &g[0], &g[1]) // the first two of 2.2.5
	return g, err
}
