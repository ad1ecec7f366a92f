package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const cacheHelp = `Called without an output, gpurun.map of the Python package keeps its results in
~/.cache/gpurun/map ($XDG_CACHE_HOME). With the same function and data, it resumes an
interrupted job and returns the result of a finished one. It removes results that were not
used for 30 days, and the oldest ones beyond 20 GiB.

  gpurun cache list
  gpurun cache clean
  gpurun cache clean --unused-for 168h --max-bytes 20GiB`

// cacheGrace is how long an entry is kept in any case: its job may be starting.
const cacheGrace = time.Minute

// cacheEntry is a result of gpurun.map.
type cacheEntry struct {
	Output  string                `json:"output"`
	Kernel  string                `json:"kernel"`
	Bytes   int64                 `json:"bytes"`
	Used    time.Time             `json:"used"`
	State   orchestrator.JobState `json:"state"`
	Removed bool                  `json:"removed,omitempty"`
	folder  string
}

func newCache() *cobra.Command {
	cmd := &cobra.Command{Use: "cache", Short: "List and remove the results that gpurun.map keeps", Long: cacheHelp}
	var list struct{ JSON bool }
	cmd.AddCommand(newCommand(&cobra.Command{
		Use:   "list",
		Short: "List the results, the most recently used first",
		Long:  "List the results that gpurun.map keeps, the most recently used first.\n\n  gpurun cache list",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			entries, err := cacheEntries()
			if err != nil {
				return err
			}
			return resultOf(entries, writeCache).show(list.JSON)
		},
	}, &list, jsonSetting))
	var o struct {
		JSON      bool
		UnusedFor time.Duration
		MaxBytes  int64
	}
	cmd.AddCommand(newCommand(&cobra.Command{
		Use:   "clean",
		Short: "Remove results that no job uses",
		Long: `Remove the results that gpurun.map keeps and that no job uses: all of them, those that were
not used for some time, or the oldest ones until the others fit into a number of bytes.

  gpurun cache clean
  gpurun cache clean --unused-for 168h --max-bytes 20GiB`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			entries, err := cacheEntries()
			if err != nil {
				return err
			}
			removed, err := cleanCache(entries, o.UnusedFor, o.MaxBytes)
			if err != nil {
				return err
			}
			return resultOf(removed, writeCache).show(o.JSON)
		},
	}, &o, jsonSetting,
		spec.Setting{Name: "unused-for", Kind: spec.Duration, Field: "UnusedFor", Help: "remove what was not used for this time"},
		spec.Setting{Name: "max-bytes", Kind: spec.Size, Field: "MaxBytes", Help: "remove the least recently used until the others have at most this many bytes"}))
	return cmd
}

// cacheEntries returns the results in the cache, the most recently used first.
func cacheEntries() ([]cacheEntry, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fault.NeedsFile.New("the cache: %w", err)
	}
	outputs, _ := filepath.Glob(filepath.Join(base, "gpurun", "map", "*", "out.*"+spec.FolderSuffix))
	entries := []cacheEntry{}
	for _, folder := range outputs {
		e := cacheEntry{Output: strings.TrimSuffix(folder, spec.FolderSuffix), folder: filepath.Dir(folder)}
		if status, err := orchestrator.Inspect(e.Output, ""); err == nil {
			e.State, e.Kernel = status.State, status.Report.Kernel
		}
		_ = filepath.WalkDir(e.folder, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // removed meanwhile
			}
			if info, err := d.Info(); err == nil {
				e.Bytes += info.Size()
				if info.ModTime().After(e.Used) {
					e.Used = info.ModTime()
				}
			}
			return nil
		})
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b cacheEntry) int { return cmp.Compare(b.Used.UnixNano(), a.Used.UnixNano()) })
	return entries, nil
}

// cleanCache removes entries: those that are too old, the oldest ones beyond a number of bytes, or, without
// either limit, all. It returns those that it removed.
func cleanCache(entries []cacheEntry, unusedFor time.Duration, most int64) ([]cacheEntry, error) {
	removed, kept := []cacheEntry{}, int64(0)
	for _, e := range entries {
		age := time.Since(e.Used)
		kept += e.Bytes
		old := unusedFor > 0 && age > unusedFor || most > 0 && kept > most || unusedFor == 0 && most == 0
		if !old || e.State == orchestrator.Running || age < cacheGrace {
			continue
		}
		kept -= e.Bytes
		if err := os.RemoveAll(e.folder); err != nil {
			return removed, fault.WriteFailed.New("clean the cache: %w", err)
		}
		e.Removed = true
		removed = append(removed, e)
	}
	return removed, nil
}

func writeCache(w io.Writer, entries []cacheEntry) {
	if len(entries) == 0 {
		fmt.Fprintln(w, "nothing")
		return
	}
	table := progress.NewTable(w)
	var bytes int64
	for _, e := range entries {
		state := string(e.State)
		if e.Removed {
			state = "removed"
		}
		fmt.Fprintf(table, "%s\t%s\t%d MiB\t%s\n", e.Used.Format(time.DateTime), state, (e.Bytes+1<<20-1)>>20, e.Output)
		bytes += e.Bytes
	}
	_ = table.Flush()
	fmt.Fprintf(w, "%d results, %d MiB\n", len(entries), (bytes+1<<20-1)>>20)
}
