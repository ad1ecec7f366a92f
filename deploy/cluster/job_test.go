package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(containerVariable); text != "" {
		runtime.LockOSThread()
		var c container
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.become()
		}
		fmt.Fprintln(os.Stderr, "the container does not start:", err)
		os.Exit(128)
	}
	os.Exit(m.Run())
}

const (
	// records of the input; halfway through each shard, the kernel waits for a file.
	records = 400
	user    = 1000
)

// kernel waits for a file before records that say so, and marks where it waits.
const kernel = `#!/bin/sh
while read -r line; do
	case $line in *'"wait":true'*)
		test -e %[1]s || : > %[2]s/$POD_NAME
		until test -e %[1]s; do sleep 0.1; done;;
	esac
	printf '{"line":%%s}\n' "$line"
done
`

// fixture is a cluster with two nodes and a volume.
type fixture struct {
	*controlPlane
	t      *testing.T
	gpurun string
	volume string
	nodes  map[string]*kubelet
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	bin, gpurun := os.Getenv("GPURUN_K8S"), os.Getenv("GPURUN")
	if bin == "" || gpurun == "" {
		t.Skip("make k8s-test runs it")
	}
	// Not in /tmp: pods have their own.
	dir, err := os.MkdirTemp("/var/tmp", "gpurun-k8s-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	_ = os.Chmod(dir, 0o755)
	f := &fixture{t: t, gpurun: dir + "/bin/gpurun", volume: dir + "/volume", nodes: make(map[string]*kubelet)}
	for _, name := range []string{"bin", "volume", "servers", "pods"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.copyProgram(gpurun)
	if os.Getuid() == 0 {
		if err := os.Chown(f.volume, user, user); err != nil {
			t.Fatal(err)
		}
	}
	f.controlPlane = startControlPlane(t, bin, dir+"/servers")
	f.startNode("node-1")
	f.startNode("node-2")
	must(t, f.client, "POST", "/api/v1/persistentvolumes", object{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "data"},
		"spec": object{"capacity": object{"storage": "1Gi"}, "accessModes": []string{"ReadWriteMany"}, "hostPath": object{"path": f.volume}},
	})
	must(t, f.client, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": "data"},
		"spec": object{"accessModes": []string{"ReadWriteMany"}, "storageClassName": "", "volumeName": "data", "resources": object{"requests": object{"storage": "1Gi"}}},
	})
	return f
}

func (f *fixture) copyProgram(from string) {
	f.t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(f.gpurun, data, 0o755)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) startNode(name string) {
	f.t.Helper()
	dir := filepath.Dir(f.volume) + "/pods"
	f.nodes[name] = startKubelet(f.t, f.client, name, dir, filepath.Dir(f.gpurun)+":/usr/local/bin:/usr/bin:/bin", []string{"GPURUN_GPUS=cpu:1"})
}

// command returns gpurun as the user of the pods.
func (f *fixture) command(args ...string) *exec.Cmd {
	cmd := exec.Command(f.gpurun, args...)
	cmd.Dir, cmd.Env = f.volume, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.volume}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	return cmd
}

// job is a Job of Kubernetes and the folder of its files.
type job struct {
	*fixture
	name, dir, status string
	manifest          object
	logs              map[string]string // of pods, by name
}

// submit generates a Job as gpurun submit k8s prints it. The kernel may be "" for the usual one.
func (f *fixture) submit(t *testing.T, name, kernelText string, shards int, more ...string) *job {
	t.Helper()
	f.t = t
	j := &job{fixture: f, name: name, dir: filepath.Join(f.volume, name), logs: make(map[string]string)}
	for _, dir := range []string{j.dir, j.dir + "/waiting"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var input strings.Builder
	for i := range records {
		fmt.Fprintf(&input, "{\"id\":%d,\"wait\":%t}\n", i, i%(records/shards) >= records/shards/2)
	}
	if kernelText == "" {
		kernelText = fmt.Sprintf(kernel, j.dir+"/gate", j.dir+"/waiting")
	}
	for path, text := range map[string]string{"in.jsonl": input.String(), "kernel": kernelText} {
		if err := os.WriteFile(filepath.Join(j.dir, path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		for _, path := range []string{"", "waiting", "in.jsonl", "kernel"} {
			if err := os.Chown(filepath.Join(j.dir, path), user, user); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := f.command(append([]string{
		"submit", "k8s", "--print", "--image", "test", "--claim", "data:" + f.volume, "--nodes", "2", "--gpus-per-node", "1", "--shards", fmt.Sprint(shards),
		"--name", name, "--claim-after", "10s",
	}, append(j.settings("out.jsonl"), more...)...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	for _, line := range strings.Split(string(text), "\n") {
		if _, command, ok := strings.Cut(line, " -- "); ok && strings.HasPrefix(line, "# Follow:") {
			j.status = command
		}
	}
	if err := yaml.UnmarshalStrict(text, &j.manifest); err != nil {
		t.Fatal(err)
	}
	return j
}

// settings returns the arguments that describe the job, on one machine or in a cluster.
func (j *job) settings(output string) []string {
	return []string{
		"-k", "exec:" + j.dir + "/kernel", j.dir + "/in.jsonl", "-o", filepath.Join(j.dir, output), "--batch-size", "5", "--chunks-per-gpu", "8", "--drain-timeout", "2s",
	}
}

func (j *job) apply(t *testing.T) {
	t.Helper()
	if _, err := j.create(j.manifest, "default", ""); err != nil {
		t.Fatalf("the API server refuses the Job: %v", err)
	}
	t.Cleanup(func() {
		j.keepLogs()
		if t.Failed() {
			for name, log := range j.logs {
				t.Logf("pod %s:\n%s", name, log)
			}
			state, _ := j.do("GET", j.path(), nil)
			text, _ := json.MarshalIndent(state.at("status"), "", " ")
			t.Logf("the Job: %s", text)
		}
		j.remove(t)
	})
}

func (j *job) path() string { return "/apis/batch/v1/namespaces/default/jobs/" + j.name }

// remove deletes the Job, as kubectl delete does, and waits for its pods to end.
func (j *job) remove(t *testing.T) {
	t.Helper()
	_, err := j.do("DELETE", j.path()+"?propagationPolicy=Foreground", nil)
	var refused *apiError
	switch {
	case errors.As(err, &refused) && refused.code == http.StatusNotFound:
		return
	case err != nil:
		t.Fatal(err)
	}
	wait(t, 2*time.Minute, "the end of the Job's pods", func() bool {
		_, err := j.do("GET", j.path(), nil)
		return len(j.pods(t)) == 0 && errors.As(err, &refused) && refused.code == http.StatusNotFound
	})
}

// pods returns the Job's pods.
func (j *job) pods(t *testing.T) []object {
	t.Helper()
	return must(t, j.client, "GET", "/api/v1/namespaces/default/pods?labelSelector=batch.kubernetes.io/job-name="+j.name, nil).list("items")
}

func (j *job) keepLogs() {
	paths, _ := filepath.Glob(filepath.Dir(j.volume) + "/pods/" + j.name + "-*.log")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		j.logs[strings.TrimSuffix(filepath.Base(path), ".log")] = string(text)
	}
}

// log returns what all pods have logged.
func (j *job) log() string {
	j.keepLogs()
	var all strings.Builder
	for _, text := range j.logs {
		all.WriteString(text)
	}
	return all.String()
}

// waiting waits for a pod of an index that has computed half of a shard, and returns it.
func (j *job) waiting(t *testing.T, index int, not ...string) (found object) {
	t.Helper()
	wait(t, 3*time.Minute, fmt.Sprintf("a pod of index %d halfway", index), func() bool {
		for _, pod := range j.pods(t) {
			_, err := os.Stat(filepath.Join(j.dir, "waiting", pod.name()))
			if indexOf(pod) == index && err == nil && pod.text("status", "phase") == "Running" && pod.text("metadata", "deletionTimestamp") == "" {
				for _, other := range not {
					if pod.name() == other {
						return false
					}
				}
				found = pod
				return true
			}
		}
		return false
	})
	return found
}

func indexOf(pod object) int {
	index := -1
	_, _ = fmt.Sscan(fieldOf(pod, "metadata.annotations['batch.kubernetes.io/job-completion-index']"), &index)
	return index
}

// open lets the kernels continue.
func (j *job) open(t *testing.T) { write(t, j.dir+"/gate", ""); _ = os.Chmod(j.dir+"/gate", 0o644) }

// succeed waits for the Job to succeed and compares the output with that of one process.
func (j *job) succeed(t *testing.T) {
	t.Helper()
	wait(t, 3*time.Minute, "the end of the Job", func() bool {
		state := must(t, j.client, "GET", j.path(), nil)
		if state.condition("Failed") == "True" || state.condition("FailureTarget") == "True" {
			t.Fatalf("the Job failed: %v", state.at("status"))
		}
		return state.condition("SuccessCriteriaMet") == "True"
	})
	got, err := os.ReadFile(j.dir + "/out.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := j.command(append([]string{"run", "-q", "--gpus", "cpu:1"}, j.settings("single.jsonl")...)...).CombinedOutput(); err != nil {
		t.Fatalf("a single run: %v: %s", err, text)
	}
	want, err := os.ReadFile(j.dir + "/single.jsonl")
	if err != nil || !bytes.Equal(got, want) || bytes.Count(got, []byte("\n")) != records {
		t.Errorf("the output differs from that of a single run, %v: %d and %d bytes", err, len(got), len(want))
	}
}

// complete waits until nothing is left of a Job that has succeeded.
func (j *job) complete(t *testing.T) {
	t.Helper()
	wait(t, 4*time.Minute, "condition Complete", func() bool { return must(t, j.client, "GET", j.path(), nil).condition("Complete") == "True" })
}

func TestKubernetes(t *testing.T) {
	f := newFixture(t)
	t.Run("manifests", f.manifests)
	t.Run("killed pod", f.killed)
	t.Run("evictions", f.evictions)
	t.Run("delete and reapply", f.reapply)
	t.Run("failed shard", f.failedShard)
	t.Run("lost node", f.lostNode)
}

// manifests: the API server accepts what deploy/kubernetes and the golden files contain.
func (f *fixture) manifests(t *testing.T) {
	for _, name := range []string{"batch", "gpurun"} {
		must(t, f.client, "POST", "/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	}
	files := []string{}
	for _, pattern := range []string{"../kubernetes/*.yaml", "../../internal/cluster/k8s/testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var o object
			if err := yaml.UnmarshalStrict(document, &o); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if _, err := f.create(o, "gpurun", "&dryRun=All"); err != nil {
				t.Errorf("%s: the API server refuses the %s: %v", path, o.text("kind"), err)
			}
			member(o, "metadata")["misspelled"] = "x" // the dry run does check
			if _, err := f.create(o, "gpurun", "&dryRun=All"); err == nil {
				t.Errorf("%s: the API server accepts any %s", path, o.text("kind"))
			}
		}
	}
}

// killed: a killed pod is replaced, and its shard resumed. Meanwhile the command in the manifest
// shows progress, and the Service of gpurun serve does not select the pods.
func (f *fixture) killed(t *testing.T) {
	j := f.submit(t, "killed", "", 4)
	j.apply(t)
	victim := j.waiting(t, 0)
	j.waiting(t, 1)
	status := j.command(strings.Fields(j.status)[1:]...)
	text, err := status.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "running") || !strings.Contains(string(text), victim.name()) {
		t.Errorf("%s: %v\n%s", j.status, err, text)
	}
	if pods := must(t, f.client, "GET", "/api/v1/pods?labelSelector=app.kubernetes.io/component%3Dserve", nil).list("items"); len(pods) > 0 {
		t.Errorf("the Service of gpurun serve selects %d pods of a job", len(pods))
	}
	_ = f.nodes[victim.text("spec", "nodeName")].find(victim.name()).cmd.Process.Kill()
	wait(t, time.Minute, "the end of the pod", func() bool {
		return must(t, f.client, "GET", j.path(), nil).number("status", "failed") == 1
	})
	j.open(t)
	j.succeed(t)
	j.complete(t)
	if !strings.Contains(j.log(), "resuming from an earlier attempt") {
		t.Error("no pod has resumed the shard of the killed one")
	}
}

// evictions: one index loses four pods to evictions, and another one a pod to kubectl delete pod.
// None counts as a failure.
func (f *fixture) evictions(t *testing.T) {
	j := f.submit(t, "evicted", "", 2)
	j.apply(t)
	deleted := j.waiting(t, 1)
	must(t, f.client, "DELETE", "/api/v1/namespaces/default/pods/"+deleted.name(), nil)
	var evicted []string
	for range 4 {
		pod := j.waiting(t, 0, evicted...)
		evicted = append(evicted, pod.name())
		must(t, f.client, "POST", "/api/v1/namespaces/default/pods/"+pod.name()+"/eviction", object{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": pod.name(), "namespace": "default"},
		})
	}
	wait(t, time.Minute, "the end of the evicted pod", func() bool {
		for _, pod := range j.pods(t) {
			if pod.name() == evicted[3] {
				return pod.text("status", "phase") == "Failed"
			}
		}
		return true // Kubernetes has removed it
	})
	j.waiting(t, 1, deleted.name())
	state := must(t, f.client, "GET", j.path(), nil)
	if failed := state.text("status", "failedIndexes"); failed != "" || state.condition("FailureTarget") == "True" {
		t.Errorf("evictions count as failures of the indexes %s", failed)
	}
	j.open(t)
	j.succeed(t)
	j.complete(t)
}

// reapply: a Job that is deleted halfway continues when it is applied again. Applied once
// more, it ends at once.
func (f *fixture) reapply(t *testing.T) {
	j := f.submit(t, "reapplied", "", 4)
	j.apply(t)
	first := j.waiting(t, 0)
	j.waiting(t, 1)
	j.remove(t)
	if log := j.log(); !strings.Contains(log, "SIGTERM") {
		t.Errorf("pods were not stopped by SIGTERM:\n%s", log)
	}
	j.apply(t)
	j.waiting(t, 0, first.name())
	j.open(t)
	j.succeed(t)
	if !strings.Contains(j.log(), "resuming from an earlier attempt") {
		t.Error("no pod has resumed what the deleted Job has computed")
	}
	j.remove(t)
	j.apply(t)
	j.succeed(t)
	j.complete(t)
}

// failedShard: the Job fails when all but the shards that always fail is computed.
func (f *fixture) failedShard(t *testing.T) {
	more := []string{"--limit", "10", "--chunks-per-gpu", "1"}
	j := f.submit(t, "failed", "#!/bin/sh\ngrep -v '\"id\":[5-9],'\n", 2, more...)
	for range 2 {
		args := append([]string{"run", "--shard", "1/2", "--no-claim", "--gpus", "cpu:1"}, j.settings("out.jsonl")...)
		cmd := j.command(append(args, more...)...)
		if text, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 5 {
			t.Fatalf("%v: %s", err, text)
		}
	}
	j.apply(t)
	wait(t, 3*time.Minute, "the end of the Job", func() bool {
		state := must(t, f.client, "GET", j.path(), nil)
		return state.condition("FailureTarget") == "True" || state.condition("Failed") == "True" || state.condition("SuccessCriteriaMet") == "True"
	})
	for _, one := range must(t, f.client, "GET", j.path(), nil).list("status", "conditions") {
		if one.text("reason") != "PodFailurePolicy" {
			t.Errorf("the Job ended with %v", one)
		}
	}
	if log := j.log(); !strings.Contains(log, "1 of 2 shards failed: 1") {
		t.Errorf("no pod names the shard:\n%s", log)
	}
}

// lostNode: other pods take over the shard of a lost node, and the Job succeeds although
// Kubernetes waits for that node.
func (f *fixture) lostNode(t *testing.T) {
	j := f.submit(t, "lost", "", 4)
	j.apply(t)
	lost := j.waiting(t, 0)
	j.waiting(t, 1)
	node := lost.text("spec", "nodeName")
	f.nodes[node].lose()
	wait(t, 2*time.Minute, "the deletion of the pod", func() bool {
		for _, pod := range j.pods(t) {
			if pod.name() == lost.name() {
				return pod.text("metadata", "deletionTimestamp") != ""
			}
		}
		return true
	})
	j.open(t)
	j.succeed(t)
	if state := must(t, f.client, "GET", j.path(), nil); state.condition("Complete") == "True" {
		t.Error("the Job is complete: the node was not lost")
	}
	must(t, f.client, "DELETE", "/api/v1/nodes/"+node, nil)
	j.complete(t)
}
