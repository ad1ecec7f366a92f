// Package cluster shares one job among machines: shard i of n in a shared folder, under any
// scheduler. It knows no scheduler, no kernel and no device.
//
// Each machine computes shards, contiguous ranges of the input's records, and commits them.
// When all are committed, one machine merges them into the output. All coordination happens
// in the run folder next to the output:
//
//	out.jsonl.shards/
//	  run.json                    what the run is, see Manifest; never changes
//	  corrected-2/run.json        the run that counts instead, see Correct; all else is here then
//	  attempts/00003-8f3a1c20/    one attempt to compute shard 3; no other process writes here
//	    attempt.json              who computes it
//	    beat.json                 replaced at intervals: the attempt is alive, and how far it is
//	    end.json                  how it ended
//	    out.jsonl                 its output, with its job folder beside it
//	    column-0.npy              an array beside the output
//	    result.json               counts and checksums of the finished shard
//	  claims/00003.0001           a link to an attempt.json: the first claim on shard 3
//	  commits/00003.json          a link to a result.json: shard 3 is done
//	  claims/merge.0001           the same for the merge
//	  layout.json                 the layout of an output with columns, once it is agreed
//	  merged.json
//
// The folder may be on a network file system, where locks do not reach other hosts. Hence:
// every file has one writer; names that several processes compete for are created with
// link(2), which fails if the name exists, and confirmed with stat; a process counts as lost
// when its beat has not changed for a while by the observer's own clock. Two processes may
// compute the same shard at the same time, because a machine that looked dead was not, or
// because a faster one computes a copy (copy.go). The first commit wins, and neither can
// damage what the other has written.
package cluster
