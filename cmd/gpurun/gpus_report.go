package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/progress"
)

// historyLength is how many past events a report or export contains.
const historyLength = 1000

// gpuReport is a host overview with lease statistics and advice.
type gpuReport struct {
	host.Overview
	// Statistics count all leases, History holds the last events.
	Statistics lease.Statistics `json:"statistics"`
	History    []lease.Event    `json:"history"`
	Advice     []string         `json:"advice"`
}

func (f *gpusFlags) report(cmd *cobra.Command) (gpuReport, error) {
	rules, err := f.rules(cmd)
	if err != nil {
		return gpuReport{}, err
	}
	r := gpuReport{Overview: overview(cmd.Context(), rules), History: []lease.Event{}, Advice: []string{}}
	r.Advice = append(r.Advice, r.Overview.Advice(rules.Optimization.MemoryThreshold)...)
	folder, err := lease.OpenExisting("")
	if err != nil || folder == nil {
		return r, nil // the overview notes it
	}
	if r.Statistics, err = folder.Statistics(); err != nil {
		return r, err
	}
	r.History, err = folder.History(historyLength)
	return r, err
}

func newExport(f *gpusFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "Export GPUs, leases and jobs as JSON",
		Long:  "Write GPUs, leases, jobs, lease history and recommendations to FILE as JSON (- for\nstandard output). The file is written atomically.\n\n  gpurun gpus export leases.json",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.report(cmd)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				return writeJSON(r)
			}
			data, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				return err
			}
			if err := files.WriteDurably(args[0], append(data, '\n'), files.PublicMode); err != nil {
				return fault.SideFile.New("export: %w", err)
			}
			return nil
		},
	}
}

func newGPUReport(f *gpusFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "report",
		Short: "Show GPUs, leases and jobs, with recommendations",
		Long:  "Show GPUs, leases, jobs and lease statistics, with recommendations based on them.\n\n  gpurun gpus report",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.report(cmd)
			if err != nil {
				return err
			}
			if f.json {
				return writeJSON(r)
			}
			r.write()
			return nil
		},
	}
}

func (r gpuReport) write() {
	progress.WriteOverview(os.Stdout, r.Overview)
	for _, g := range r.GPUs {
		a := g.Account
		if g.Lost != "" {
			continue // the overview shows the reason
		}
		fmt.Printf("%s: %d MiB leased, %d MiB used without a lease, %d MiB in reserve, %d MiB free to lease\n",
			g.Device, a.Leased/lease.MiB, a.Other/lease.MiB, a.Reserve/lease.MiB, a.Free/lease.MiB)
	}
	if len(r.Leases) > 0 {
		progress.WriteLeases(os.Stdout, r.Leases, time.Now())
	}
	s := r.Statistics
	fmt.Printf("leases so far: %d allocated (%d held, %d released, %d ended with their owner, %d expired", s.Allocated, s.Held, s.Released, s.OwnerDied, s.Expired)
	if s.Damaged+s.Unaccounted > 0 {
		fmt.Printf(", %d damaged or removed by hand", s.Damaged+s.Unaccounted)
	}
	fmt.Printf("), %d requests refused\n", s.Refused)
	for _, text := range r.Advice {
		fmt.Println("- " + text)
	}
	if len(r.Advice) == 0 {
		fmt.Println("no recommendations")
	}
}
