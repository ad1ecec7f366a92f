// Package claim leases the GPUs of a job, so that jobs of several processes and users
// share a machine:
//
//	policy := claim.Policy{Name: "nightly", NumGPUs: 2}
//	report, err := orchestrator.Run(ctx, orchestrator.Config{…, Devices: orchestrator.Devices{Claim: policy.Claim}})
//
// It connects three packages that do not know each other: the devices of gpu become cards
// of gpu/lease, and leases become an orchestrator.Claim.
package claim
