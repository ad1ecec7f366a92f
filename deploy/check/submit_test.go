package check

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestSubmittedJobs decodes the golden files of gpurun submit k8s strictly, and checks the
// policies on which a run with lost nodes depends.
func TestSubmittedJobs(t *testing.T) {
	paths, err := filepath.Glob("../../internal/cluster/k8s/testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		job, ok := decode(t, path, text).(*batchv1.Job)
		if !ok {
			t.Fatalf("%s is not a Job", path)
		}
		checkPolicies(t, path, job.Spec)
		checkPod(t, path, job.Spec.Template.Spec)
		if _, service, _ := serve(t); selects(service.Spec.Selector, job.Spec.Template.Labels) {
			t.Errorf("%s: the Service of gpurun serve selects the pods of jobs: %v", path, job.Spec.Template.Labels)
		}
	}
}

func checkPolicies(t *testing.T, path string, spec batchv1.JobSpec) {
	t.Helper()
	switch {
	case spec.CompletionMode == nil || *spec.CompletionMode != batchv1.IndexedCompletion:
		t.Errorf("%s: not an Indexed Job", path)
	case spec.Completions == nil || spec.Parallelism == nil || *spec.Parallelism > *spec.Completions:
		t.Errorf("%s: completions %v, parallelism %v", path, spec.Completions, spec.Parallelism)
	case spec.BackoffLimitPerIndex == nil:
		t.Errorf("%s: one failed shard would end the others", path)
	case spec.SuccessPolicy == nil || len(spec.SuccessPolicy.Rules) != 1 || *spec.SuccessPolicy.Rules[0].SucceededCount != 1:
		t.Errorf("%s: pods of lost nodes would keep the Job from succeeding", path)
	case spec.PodReplacementPolicy != nil && *spec.PodReplacementPolicy != batchv1.Failed:
		t.Errorf("%s: Kubernetes refuses this policy beside a podFailurePolicy", path)
	case spec.TTLSecondsAfterFinished == nil:
		t.Errorf("%s: Jobs would stay forever", path)
	case !ignores(spec, func(rule batchv1.PodFailurePolicyRule) bool {
		return slices.ContainsFunc(rule.OnPodConditions, func(on batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return on.Type == corev1.DisruptionTarget && on.Status == corev1.ConditionTrue
		})
	}):
		t.Errorf("%s: evictions would count as failures", path)
	case !ignores(spec, func(rule batchv1.PodFailurePolicyRule) bool {
		return rule.OnExitCodes != nil && slices.Contains(rule.OnExitCodes.Values, 143) && slices.Contains(rule.OnExitCodes.Values, 130)
	}):
		t.Errorf("%s: pods that a signal stopped would count as failures", path)
	}
}

// ignores reports whether a rule that ignores failures matches.
func ignores(spec batchv1.JobSpec, match func(batchv1.PodFailurePolicyRule) bool) bool {
	return spec.PodFailurePolicy != nil && slices.ContainsFunc(spec.PodFailurePolicy.Rules, func(rule batchv1.PodFailurePolicyRule) bool {
		return rule.Action == batchv1.PodFailurePolicyActionIgnore && match(rule)
	})
}

func checkPod(t *testing.T, path string, pod corev1.PodSpec) {
	t.Helper()
	container := pod.Containers[0]
	security := pod.SecurityContext
	switch {
	case pod.RestartPolicy != corev1.RestartPolicyNever:
		t.Errorf("%s: restartPolicy %s; backoffLimitPerIndex needs Never", path, pod.RestartPolicy)
	case security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot || *security.RunAsUser == 0:
		t.Errorf("%s: the pod may run as root", path)
	case container.SecurityContext == nil || *container.SecurityContext.AllowPrivilegeEscalation:
		t.Errorf("%s: the pod may become root", path)
	case len(pod.Volumes) == 0 || pod.Volumes[0].PersistentVolumeClaim == nil || container.VolumeMounts[0].Name != pod.Volumes[0].Name:
		t.Errorf("%s: no volume claim", path)
	case *pod.TerminationGracePeriodSeconds <= 20:
		t.Errorf("%s: pods get %d s to save their results", path, *pod.TerminationGracePeriodSeconds)
	}
	if !slices.ContainsFunc(pod.Tolerations, func(one corev1.Toleration) bool {
		return one.Key == corev1.TaintNodeUnreachable && one.TolerationSeconds != nil && *one.TolerationSeconds < 300
	}) {
		t.Errorf("%s: a lost node is given up after five minutes only", path)
	}
	if limit, ok := container.Resources.Limits["nvidia.com/gpu"]; ok && limit.Value() < 1 {
		t.Errorf("%s: GPU limit %s", path, limit.String())
	}
}
