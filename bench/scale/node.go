package main

import (
	"math"
	"math/rand/v2"
)

// nodeSetting is one shard on one node.
type nodeSetting struct {
	gpus, perGPU int
	seconds      float64 // what the shard takes on GPUs of average speed
	spread       float64 // standard deviation of the logarithm of the GPUs' speeds
	chunkCost    float64 // for each chunk
	batch        float64 // how long a batch takes: a GPU finishes it before it gives up the rest
	share        bool    // idle GPUs take over the rest of others' chunks
}

// simulateNode returns the share of the node's GPU time that became output.
func simulateNode(s nodeSetting, seed uint64) float64 {
	random := rand.New(rand.NewPCG(seed, 2))
	speeds, free := make([]float64, s.gpus), make([]float64, s.gpus)
	total := 0.0
	for i := range speeds {
		speeds[i] = math.Exp(s.spread * random.NormFloat64())
		total += speeds[i]
	}
	work := s.seconds * float64(s.gpus)
	chunk := work / float64(s.gpus*s.perGPU)
	for range s.gpus * s.perGPU { // the GPU that is free first takes the next chunk
		first := 0
		for i := range free {
			if free[i] < free[first] {
				first = i
			}
		}
		free[first] += s.chunkCost + chunk/speeds[first]
	}
	end, busy := 0.0, 0.0
	for i := range free {
		end = max(end, free[i])
		busy += free[i] * speeds[i]
	}
	if s.share { // all end together, but for a batch
		end = min(end, busy/total+s.batch)
	}
	return work / (end * total)
}
