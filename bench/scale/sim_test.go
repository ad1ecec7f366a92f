package main

import (
	"math"
	"testing"
)

// even is a cluster without any loss.
var even = setting{
	nodes: 4, gpus: 2, records: 8000, rate: 1, shards: 4, claim: true, resume: true,
	checkpoint: 30, expiry: 60, requeue: 300, repair: 600, copyRate: 1,
}

// TestIdealCluster: equal nodes that never wait are fully used.
func TestIdealCluster(t *testing.T) {
	got := simulate(even, 1)
	if math.Abs(got.efficiency-1) > 1e-9 || math.Abs(got.hours*3600-1000) > 1e-6 || got.recomputed != 0 {
		t.Errorf("%+v; want efficiency 1, 1000 s", got)
	}
}

// TestKnownCosts compares with costs that can be computed by hand.
func TestKnownCosts(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*setting)
		want   float64 // seconds
	}{
		"loading once":              {func(s *setting) { s.load = 50 }, 1050},
		"edges between shards":      {func(s *setting) { s.load, s.edge, s.shards = 50, 5, 16 }, 1000 + 50 + 3*5},
		"a task for each shard":     {func(s *setting) { s.load, s.queue, s.claim, s.shards = 50, 10, false, 16 }, 1000 + 4*50 + 3*10},
		"checkpoints":               {func(s *setting) { s.checkpointCost = 3 }, 1100},
		"fewer shards than nodes":   {func(s *setting) { s.shards = 1 }, 4000},
		"shards do not divide well": {func(s *setting) { s.shards = 5 }, 1600},
	} {
		s := even
		one.change(&s)
		if got := simulate(s, 1).hours * 3600; math.Abs(got-one.want) > 1e-6 {
			t.Errorf("%s: %.3f s, want %.3f", name, got, one.want)
		}
	}
}

// TestFailures: a run ends in spite of failures, and resuming bounds what is recomputed.
func TestFailures(t *testing.T) {
	s := even
	s.records, s.shards, s.mtbf = 800_000, 64, 20_000
	resumed := simulate(s, 7)
	if resumed.failures == 0 {
		t.Fatal("no failure was simulated")
	}
	most := float64(resumed.failures) * s.checkpoint * s.rate * float64(s.gpus) / s.records
	if resumed.recomputed <= 0 || resumed.recomputed > most {
		t.Errorf("recomputed %g of the records; want more than 0, at most %g", resumed.recomputed, most)
	}
	s.resume = false
	if from := simulate(s, 7); from.recomputed <= resumed.recomputed {
		t.Errorf("recomputed %g without resuming, %g with it", from.recomputed, resumed.recomputed)
	}
	s.resume, s.warned = true, true
	if got := simulate(s, 7); got.recomputed != 0 {
		t.Errorf("recomputed %g although every node saved its results first", got.recomputed)
	}
}

// TestCopies: a copy on a fast node ends a run before its slowest node does.
func TestCopies(t *testing.T) {
	s := even
	s.slow, s.spread, s.shards, s.beat = 0.3, 0.2, 7, 1
	var alone, copied, recomputed float64
	for seed := range uint64(20) {
		s.copies = false
		alone += simulate(s, seed).hours
		s.copies = true
		got := simulate(s, seed)
		copied += got.hours
		recomputed += got.copied
	}
	if copied >= alone || recomputed <= 0 {
		t.Errorf("%g hours with copies, which have recomputed %g of the records; %g hours without", copied, recomputed, alone)
	}
	s.mtbf, s.records = 3000, 80_000 // either of the two attempts may be lost
	if got := simulate(s, 3); got.failures == 0 || got.hours <= 0 {
		t.Errorf("with failures: %+v", got)
	}
}

// TestNode compares with what can be computed by hand.
func TestNode(t *testing.T) {
	equal := nodeSetting{gpus: 8, perGPU: 16, seconds: 100}
	for name, one := range map[string]struct {
		change func(*nodeSetting)
		want   float64
	}{
		"equal GPUs":         {func(*nodeSetting) {}, 1},
		"a cost per chunk":   {func(s *nodeSetting) { s.chunkCost = 1 }, 100.0 / 116},
		"sharing costs less": {func(s *nodeSetting) { s.share, s.batch = true, 1 }, 1},
	} {
		s := equal
		one.change(&s)
		if got := simulateNode(s, 1); math.Abs(got-one.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, one.want)
		}
	}
	uneven := equal
	uneven.spread, uneven.perGPU = 0.2, 1
	alone := simulateNode(uneven, 1)
	if uneven.share = true; simulateNode(uneven, 1) <= alone {
		t.Errorf("sharing brings nothing: %g", alone)
	}
}
