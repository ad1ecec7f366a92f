package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/server"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const serveHelp = `Serve a page, an API and Prometheus metrics of this host: its GPUs, who leases them,
and your jobs, running and past.

  gpurun serve
  gpurun serve --run /shared/out.jsonl
  gpurun serve --listen 0.0.0.0:8000 --listen-token token --tls-cert cert.pem --tls-key key.pem

With --run OUTPUT it also shows a job that machines share, through its folder: all shards,
the machines, their rates and failures. It may run on any machine that sees the folder.

It prints the address of the page with a token after #. On a loopback address anyone on
this machine can read, and the token is needed to change anything. On any other address
the token is needed to read as well, and TLS, unless you pass --insecure.

Memory that is leased through the API is held by this process, until it is deallocated,
expires, or gpurun serve ends. gpurun manual api describes the API, /openapi.json its
details.`

func newServe() *cobra.Command {
	var o struct {
		listenOptions
		Services string
		Runs     []string
	}
	return newCommand(&cobra.Command{
		Use:   "serve",
		Short: "Serve a page, an API and metrics of this host",
		Long:  serveHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := lease.ReadConfig(o.Services)
			if err != nil {
				return err
			}
			var runs []*cluster.Watch
			for _, output := range o.Runs {
				run, err := cluster.Open(output)
				if err != nil {
					return err
				}
				runs = append(runs, watchRun(run, 0))
			}
			return serveHost(cmd.Context(), o.listenOptions, rules, runs)
		},
	}, &o, append(listenSettings("", "127.0.0.1:8000", "ADDRESS and port to serve at"), servicesSetting("Services"),
		spec.Setting{Name: "run", Kind: spec.Repeated, Field: "Runs", Value: "OUTPUT", Help: "also show the shards of the job with this OUTPUT, which machines share (repeatable)"})...)
}

// serveHost serves until a signal arrives.
func serveHost(ctx context.Context, o listenOptions, rules lease.Config, runs []*cluster.Watch) error {
	ctx, stop := untilStopped(ctx)
	defer stop()
	l, err := o.listen()
	if err != nil {
		return err
	}
	host := server.NewHost(rules)
	host.ShowRuns(runs)
	m := metrics.New(host.Metrics())
	host.CountAllocations(m.Allocations)
	end := l.serve(server.New(l.access, host, m))
	fmt.Println(l.url())
	var watching sync.WaitGroup
	watching.Go(func() { host.Run(ctx) })
	<-ctx.Done()
	end()
	watching.Wait()
	return nil
}
