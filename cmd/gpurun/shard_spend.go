package main

import (
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/shards"
	"github.com/gpurun/gpurun/orchestrator"
)

// shardLimit is a shard's share of a spend limit of the run.
type shardLimit struct {
	shard         int
	setting, what string
	limit, share  int64
}

// shardLimits are the spend limits of one shard.
type shardLimits []shardLimit

// limit gives a shard its shares of the run's spend limits. What earlier attempts at it have
// spent counts.
func (w *shardWork) limit(a *cluster.Attempt, config *orchestrator.Config) (limits shardLimits, err error) {
	config.Resume.Spent = make(map[string]int64)
	for _, output := range a.Earlier() {
		spent, err := shards.Spent(output)
		if err != nil && (config.Resume.MaxRequests > 0 || config.Resume.MaxTokens > 0) {
			return nil, err
		}
		for name, n := range spent { // each attempt began with the counts of those before it
			config.Resume.Spent[name] = max(config.Resume.Spent[name], n)
		}
	}
	for _, one := range []struct {
		figure, setting, what string
		limit                 *int64
	}{
		{figures.Requests, "max-requests", "requests", &config.Resume.MaxRequests},
		{figures.TotalTokens, "max-tokens-total", "tokens", &config.Resume.MaxTokens},
	} {
		if *one.limit == 0 {
			continue
		}
		l := shardLimit{shard: a.Shard, setting: one.setting, what: one.what, limit: *one.limit}
		l.share = a.Share(l.limit, func(r cluster.Result) int64 { return r.Usage[one.figure] })
		if *one.limit = l.share; l.share == 0 { // which would mean no limit
			return nil, l.reached()
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// explain names the run's limit instead of the share at which a shard has stopped.
func (limits shardLimits) explain(err error) error {
	e := fault.As(err)
	for _, l := range limits {
		if e != nil && e.Kind == fault.Stopped && e.Value == l.setting {
			return l.reached()
		}
	}
	return err
}

func (l shardLimit) reached() error {
	return fault.SpendLimit.New("shard %d has used its share of the limit of %d %s, which is %d; raise the limit and run the same command to resume", l.shard, l.limit, l.what, l.share).Set(l.setting)
}
