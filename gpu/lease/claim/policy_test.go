package claim_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

var (
	cards = []gpu.Device{{Kind: gpu.GPU, UUID: "GPU-0"}, {Kind: gpu.GPU, UUID: "GPU-1", Index: 1}}
	cpu   = []gpu.Device{{Kind: gpu.CPU}}
)

// An embedding program passes a policy as Config.Devices.Claim.
var _ = orchestrator.Config{Devices: orchestrator.Devices{Claim: claim.Policy{}.Claim}}

func TestClaimWithoutLeases(t *testing.T) {
	for name, test := range map[string]struct {
		policy  claim.Policy
		devices []gpu.Device
		env     string
		want    int    // devices
		refused string // part of the message
	}{
		"on the CPU":            {claim.Policy{}, cpu, "", 1, ""},
		"GPUs on the CPU":       {claim.Policy{NumGPUs: 1}, cpu, "", 0, "would run on the CPU"},
		"memory on the CPU":     {claim.Policy{Memory: 1 << 30}, cpu, "", 0, "would run on the CPU"},
		"more than there are":   {claim.Policy{NumGPUs: 3}, cards, "", 0, "3 GPUs requested, but only 2"},
		"turned off":            {claim.Policy{NoLease: true}, cards, "", 2, ""},
		"turned off, fewer":     {claim.Policy{NoLease: true, NumGPUs: 1}, cards, "", 1, ""},
		"allocated by Slurm":    {claim.Policy{}, cards, "SLURM_JOB_ID", 2, ""},
		"allocated by the pod":  {claim.Policy{}, cards, "KUBERNETES_SERVICE_HOST", 2, ""},
		"a card without a UUID": {claim.Policy{}, []gpu.Device{{Kind: gpu.GPU}}, "", 0, "cannot be leased: the driver does not report"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.env != "" {
				t.Setenv(test.env, "1")
			}
			got, err := test.policy.Claim(context.Background(), orchestrator.ClaimRequest{
				Devices: test.devices, Most: len(test.devices), PerWorker: 1, Notice: func(string) {},
			})
			if test.refused != "" {
				if fault.KindOf(err) != fault.NoDevice || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("got %v, want %q", err, test.refused)
				}
				return
			}
			if err != nil || len(got.Devices) != test.want {
				t.Fatalf("got %+v, %v; want %d devices", got, err, test.want)
			}
			got.Keep(nil)
			got.Release()
		})
	}
}

// A GPU that does not report its UUID costs the job only itself, unless the user named it.
func TestUnreadableUUIDLeavesTheOtherGPUs(t *testing.T) {
	t.Setenv(lease.Variable, t.TempDir())
	mixed := []gpu.Device{cards[0], {Kind: gpu.GPU, Index: 2}, cards[1]}
	for name, test := range map[string]struct {
		policy  claim.Policy
		named   bool
		group   int
		want    int
		refused string
	}{
		"all of them":       {want: 2},
		"as many as can be": {policy: claim.Policy{NumGPUs: 2}, want: 2},
		"all, in pairs":     {group: 2, want: 2},
		"named":             {named: true, refused: "GPU 2 cannot be leased"},
		"more than can be":  {policy: claim.Policy{NumGPUs: 3}, refused: "only 2 can be leased: skipping GPU 2"},
		"in threes":         {group: 3, refused: "only 2 can be leased: skipping GPU 2"},
	} {
		t.Run(name, func(t *testing.T) {
			group := max(1, test.group)
			got, err := test.policy.Claim(context.Background(), orchestrator.ClaimRequest{
				Devices: mixed, Named: test.named, Most: len(mixed) / group * group, PerWorker: group, Notice: func(string) {},
			})
			if test.refused != "" {
				if fault.KindOf(err) != fault.NoDevice || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("got %v, want %q", err, test.refused)
				}
				return
			}
			if err != nil || len(got.Devices) != test.want || !slices.ContainsFunc(got.Notes, func(n string) bool { return strings.Contains(n, "skipping GPU 2: it cannot be leased") }) {
				t.Fatalf("got %+v, %v; want %d devices", got, err, test.want)
			}
			got.Release()
		})
	}
}
