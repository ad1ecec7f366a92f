package main

import (
	"context"
	"fmt"
	"io"
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
	// Statistics count the leases of the history, History holds its last events.
	Statistics lease.Statistics `json:"statistics"`
	History    []lease.Event    `json:"history"`
	Advice     []string         `json:"advice"`
}

func newGPUReport(ctx context.Context, rules lease.Config) (gpuReport, error) {
	r := gpuReport{Overview: overview(ctx, rules), History: []lease.Event{}, Advice: []string{}}
	r.Advice = append(r.Advice, r.Overview.Advice(rules.Optimization.MemoryThreshold)...)
	folder, err := lease.OpenExisting("")
	if err != nil || folder == nil {
		return r, nil // the overview notes it
	}
	if r.Statistics, err = folder.Statistics(); err != nil {
		return r, err
	}
	r.History = folder.History(historyLength)
	return r, nil
}

func (o *gpusOptions) newExport() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "export FILE",
		Short: "Export GPUs, leases and jobs as JSON",
		Long:  "Write GPUs, leases, jobs, lease history and recommendations to FILE as JSON (- for\nstandard output). The file is written atomically.\n\n  gpurun gpus export leases.json",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, rules lease.Config, args []string) (*result, error) {
		r, err := newGPUReport(cmd.Context(), rules)
		if err != nil {
			return nil, err
		}
		if args[0] == "-" {
			return nil, result{value: r}.show(true)
		}
		if err := files.WriteJSON(args[0], r, files.PublicMode); err != nil {
			return nil, fault.SideFile.New("export: %w", err)
		}
		return nil, nil
	})
}

func (o *gpusOptions) newReport() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "report",
		Short: "Show GPUs, leases and jobs, with recommendations",
		Long:  "Show GPUs, leases, jobs and lease statistics, with recommendations based on them.\n\n  gpurun gpus report",
		Args:  cobra.NoArgs,
	}, func(cmd *cobra.Command, rules lease.Config, _ []string) (*result, error) {
		r, err := newGPUReport(cmd.Context(), rules)
		if err != nil {
			return nil, err
		}
		return &result{r, r.write}, nil
	})
}

func (r gpuReport) write(w io.Writer) {
	progress.WriteOverview(w, r.Overview)
	for _, g := range r.GPUs {
		a := g.Account
		if g.Lost != "" {
			continue // the overview shows the reason
		}
		fmt.Fprintf(w, "%s: %d MiB leased, %d MiB used without a lease, %d MiB in reserve, %d MiB free to lease\n",
			g.Device, a.Leased/lease.MiB, a.Other/lease.MiB, a.Reserve/lease.MiB, a.Free/lease.MiB)
	}
	if len(r.Leases) > 0 {
		progress.WriteLeases(w, r.Leases, time.Now())
	}
	s := r.Statistics
	fmt.Fprintf(w, "leases so far: %d allocated (%d held, %d released, %d ended with their owner, %d expired", s.Allocated, s.Held, s.Released, s.OwnerDied, s.Expired)
	if s.Damaged+s.Unaccounted > 0 {
		fmt.Fprintf(w, ", %d damaged or removed by hand", s.Damaged+s.Unaccounted)
	}
	fmt.Fprintf(w, "), %d requests refused\n", s.Refused)
	for _, text := range r.Advice {
		fmt.Fprintln(w, "- "+text)
	}
	if len(r.Advice) == 0 {
		fmt.Fprintln(w, "no recommendations")
	}
}
