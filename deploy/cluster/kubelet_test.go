package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kubelet is a node that runs the container of a pod as a process in namespaces of its own:
// process 1, with the pod's name as host name, its volumes and its user.
type kubelet struct {
	t    *testing.T
	api  *client
	node string
	dir  string // for the folders and logs of pods
	// path is PATH of all images.
	path string
	// env is the environment of all images.
	env  []string
	stop chan struct{}
	done sync.WaitGroup

	mutex sync.Mutex
	pods  map[string]*pod // by UID
}

// pod is a pod that this node runs, or has run.
type pod struct {
	name, uid string
	process   *process
	log       string
	started   time.Time
	stopping  bool
	reported  bool
}

// startKubelet registers a node with one GPU and runs what is bound to it.
func startKubelet(t *testing.T, api *client, node, dir, path string, env []string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, api: api, node: node, dir: dir, path: path, env: env, stop: make(chan struct{}), pods: make(map[string]*pod)}
	resources := object{"cpu": "8", "memory": "16Gi", "pods": "20", "nvidia.com/gpu": "1"}
	now := stamp(time.Now())
	must(t, api, "POST", "/api/v1/nodes", object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": node, "labels": object{"kubernetes.io/hostname": node}},
	})
	must(t, api, "PATCH", "/api/v1/nodes/"+node+"/status", object{"status": object{
		"capacity": resources, "allocatable": resources,
		"conditions": []object{{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}},
	}})
	must(t, api, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": node}, "spec": k.lease(),
	})
	k.done.Go(func() {
		var beat time.Time
		for {
			select {
			case <-k.stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			if time.Since(beat) > 2*time.Second {
				if _, err := api.do("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+node, object{"spec": k.lease()}); err == nil {
					beat = time.Now()
				}
			}
			k.sync()
		}
	})
	t.Cleanup(k.lose)
	return k
}

func (k *kubelet) lease() object {
	return object{"holderIdentity": k.node, "leaseDurationSeconds": 40, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
}

// lose is a power failure: the node's processes end, and it reports nothing any more.
func (k *kubelet) lose() {
	select {
	case <-k.stop:
		return
	default:
	}
	close(k.stop)
	k.done.Wait()
	for _, p := range k.pods {
		if p.process != nil {
			_ = p.process.cmd.Process.Kill()
			<-p.process.ended
		}
	}
}

// sync compares the pods that are bound to this node with the processes that it runs.
func (k *kubelet) sync() {
	list, err := k.api.do("GET", "/api/v1/pods?fieldSelector=spec.nodeName="+k.node, nil)
	if err != nil {
		return // the next one
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, o := range list.list("items") {
		uid, deleted := o.text("metadata", "uid"), o.text("metadata", "deletionTimestamp") != ""
		p := k.pods[uid]
		switch {
		case p == nil && !deleted:
			k.run(o)
			continue
		case p == nil:
			p = &pod{name: o.name(), uid: uid, reported: true}
			k.pods[uid] = p
			k.report(p.name, object{"phase": "Failed"})
		}
		switch {
		case p.process != nil && !p.over():
			if deleted && !p.stopping {
				p.stopping = true
				grace := time.Duration(o.number("metadata", "deletionGracePeriodSeconds")) * time.Second
				k.done.Go(func() { p.process.stop(grace) })
			}
		case !p.reported:
			p.reported = k.reportEnd(p)
		case deleted:
			_, _ = k.api.do("DELETE", "/api/v1/namespaces/default/pods/"+p.name, object{
				"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": object{"uid": uid},
			})
		}
	}
}

func (p *pod) over() bool {
	select {
	case <-p.process.ended:
		return true
	default:
		return false
	}
}

// run starts a pod's container.
func (k *kubelet) run(o object) {
	p := &pod{name: o.name(), uid: o.text("metadata", "uid"), started: time.Now(), log: filepath.Join(k.dir, o.name()+".log")}
	k.pods[p.uid] = p
	cmd, err := k.command(o)
	if err == nil {
		p.process, err = start(cmd)
	}
	if err != nil {
		k.t.Errorf("pod %s: %v", p.name, err)
		p.reported = k.report(p.name, object{"phase": "Failed", "reason": "CreateContainerError", "message": err.Error()})
		return
	}
	k.report(p.name, k.status(p, "Running", "True", object{"running": object{"startedAt": stamp(p.started)}}))
}

// reportEnd reports that a container has ended.
func (k *kubelet) reportEnd(p *pod) bool {
	code, phase, reason := p.process.exitCode(), "Failed", "Error"
	if code == 0 {
		phase, reason = "Succeeded", "Completed"
	}
	return k.report(p.name, k.status(p, phase, "False", object{"terminated": object{
		"exitCode": code, "reason": reason, "startedAt": stamp(p.started), "finishedAt": stamp(time.Now()),
	}}))
}

func (k *kubelet) status(p *pod, phase, ready string, state object) object {
	return object{
		"phase": phase, "startTime": stamp(p.started),
		"conditions": []object{{"type": "Ready", "status": ready, "lastTransitionTime": stamp(time.Now())}},
		"containerStatuses": []object{{
			"name": "gpurun", "image": "test", "imageID": "test", "ready": ready == "True", "restartCount": 0, "state": state,
		}},
	}
}

func (k *kubelet) report(name string, status object) bool {
	_, err := k.api.do("PATCH", "/api/v1/namespaces/default/pods/"+name+"/status", object{"status": status})
	return err == nil
}

// container is what the first process of a container does before it becomes the command.
type container struct {
	Host   string
	Mounts [][2]string // folder, where
	User   int
	Dir    string
	Args   []string
	Env    []string
}

// containerVariable holds a container in JSON: this program is then its first process.
const containerVariable = "GPURUN_TEST_CONTAINER"

// command returns the command that runs a pod's container.
func (k *kubelet) command(o object) (*exec.Cmd, error) {
	spec := o.list("spec", "containers")[0]
	c := container{Host: o.name(), User: member(o, "spec", "securityContext").number("runAsUser"), Dir: spec.text("workingDir")}
	folders := make(map[string]string)
	for _, volume := range o.list("spec", "volumes") {
		folder, err := k.folder(o, volume, c.User)
		if err != nil {
			return nil, err
		}
		folders[volume.text("name")] = folder
	}
	for _, mount := range spec.list("volumeMounts") {
		c.Mounts = append(c.Mounts, [2]string{folders[mount.text("name")], mount.text("mountPath")})
	}
	c.Env = append([]string{"PATH=" + k.path}, k.env...)
	for _, variable := range spec.list("env") {
		value := variable.text("value")
		if field := variable.text("valueFrom", "fieldRef", "fieldPath"); field != "" {
			value = fieldOf(o, field)
		}
		c.Env = append(c.Env, variable.text("name")+"="+value)
	}
	for _, list := range []string{"command", "args"} {
		words, _ := spec.at(list).([]any)
		for _, word := range words {
			c.Args = append(c.Args, strings.ReplaceAll(word.(string), "$$(", "$("))
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(k.dir, o.name()+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{containerVariable + "=" + string(text)}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if own := os.Getuid(); own != 0 { // one user is all that it may have in there
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: own, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd, nil
}

// member returns a member that is an object.
func member(o object, path ...string) object {
	members, _ := o.at(path...).(map[string]any)
	return members
}

// folder returns the folder of a volume: that of the claim's bound volume, or a new one.
func (k *kubelet) folder(o, volume object, user int) (string, error) {
	if claim := volume.text("persistentVolumeClaim", "claimName"); claim != "" {
		bound, err := k.api.do("GET", "/api/v1/namespaces/default/persistentvolumeclaims/"+claim, nil)
		if err != nil {
			return "", err
		}
		persistent, err := k.api.do("GET", "/api/v1/persistentvolumes/"+bound.text("spec", "volumeName"), nil)
		if err != nil {
			return "", err
		}
		return persistent.text("spec", "hostPath", "path"), nil
	}
	folder := filepath.Join(k.dir, o.name()+"-"+volume.text("name"))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	if os.Getuid() == 0 {
		return folder, os.Chown(folder, user, user)
	}
	return folder, nil
}

// fieldOf returns a field of a pod as the downward API names it.
func fieldOf(o object, field string) string {
	if before, key, ok := strings.Cut(field, "['"); ok {
		return member(o, strings.Split(before, ".")...).text(strings.TrimSuffix(key, "']"))
	}
	return o.text(strings.Split(field, ".")...)
}

// become turns this process into the command of a container.
func (c container) become() error {
	if err := syscall.Sethostname([]byte(c.Host)); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, mount := range c.Mounts {
		if err := syscall.Mount(mount[0], mount[1], "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", mount[0], mount[1], err)
		}
	}
	if c.User > 0 && c.mayChangeUser() {
		if err := syscall.Setgroups([]int{c.User}); err != nil {
			return err
		}
		if err := syscall.Setgid(c.User); err != nil {
			return err
		}
		if err := syscall.Setuid(c.User); err != nil {
			return err
		}
	}
	// Changing the user has reset it.
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0); failed != 0 {
		return failed
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	for _, variable := range c.Env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			_ = os.Setenv("PATH", path)
		}
	}
	program, err := exec.LookPath(c.Args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, c.Args, c.Env)
}

// mayChangeUser: a namespace of an ordinary user contains that user only.
func (c container) mayChangeUser() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), "4294967295")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func must(t *testing.T, api *client, method, path string, body any) object {
	t.Helper()
	answer, err := api.do(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// find returns the running process of a pod, nil if this node has none.
func (k *kubelet) find(name string) *process {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, p := range k.pods {
		if p.name == name && p.process != nil && !p.over() {
			return p.process
		}
	}
	return nil
}
