package cluster

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a program that ends with the test.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// start starts a program that dies with this one.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal is sent when the thread that has started it ends
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.ended)
		}
	}()
	return p, <-started
}

// exitCode returns the exit code as a container reports it: 128 plus the signal that killed it, if any.
func (p *process) exitCode() int {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// stop ends a process: SIGTERM, then SIGKILL.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// controlPlane is a running control plane.
type controlPlane struct {
	*client
	dir string
}

// startControlPlane starts the servers of Kubernetes in bin. All listen on 127.0.0.1 only.
func startControlPlane(t *testing.T, bin, dir string) *controlPlane {
	t.Helper()
	server := func(name string, args ...string) {
		t.Helper()
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
		p, err := start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.stop(5 * time.Second)
			if text, _ := os.ReadFile(log.Name()); t.Failed() {
				lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
				t.Logf("the end of the log of %s:\n%s", name, bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
			}
			if usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
				t.Logf("%s: %d MiB, %.0f s of CPU", name, usage.Maxrss>>10, (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds())
			}
		})
	}
	ports := freePorts(t, 3)
	store := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	server("etcd", "--data-dir", dir+"/etcd", "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync")

	token := randomHex(t)
	write(t, dir+"/tokens.csv", token+",admin,admin,system:masters\n")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	address := fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	server("kube-apiserver", "--etcd-servers", store, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(ports[2]), "--cert-dir", dir+"/certs", "--endpoint-reconciler-type", "none",
		"--token-auth-file", dir+"/tokens.csv", "--anonymous-auth=false", "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", "https://127.0.0.1", "--service-account-key-file", dir+"/sa.key", "--service-account-signing-key-file", dir+"/sa.key")
	certificate := dir + "/certs/apiserver.crt"
	wait(t, time.Minute, "the certificate of the API server", func() bool { _, err := os.Stat(certificate); return err == nil })
	api := newClient(t, address, token, certificate)
	wait(t, 2*time.Minute, "the API server", func() bool { _, err := api.do("GET", "/readyz", nil); return err == nil })

	write(t, dir+"/kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
  "clusters": [{"name": "test", "cluster": {"server": %q, "certificate-authority": %q}}],
  "users": [{"name": "admin", "user": {"token": %q}}],
  "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}`, address, certificate, token))
	common := []string{"--kubeconfig", dir + "/kubeconfig", "--leader-elect=false", "--secure-port", "0", "--bind-address", "127.0.0.1"}
	controllers := []string{
		"job-controller", "taint-eviction-controller", "node-lifecycle-controller", "pod-garbage-collector-controller", "serviceaccount-controller",
		"persistentvolume-binder-controller", "garbage-collector-controller", "namespace-controller", "ttl-after-finished-controller", "disruption-controller",
	}
	server("kube-controller-manager", append(common, "--service-account-private-key-file", dir+"/sa.key",
		"--controllers", strings.Join(controllers, ","), "--node-monitor-period", "1s", "--node-monitor-grace-period", "8s")...)
	server("kube-scheduler", common...)
	wait(t, time.Minute, "the service account", func() bool {
		_, err := api.do("GET", "/api/v1/namespaces/default/serviceaccounts/default", nil)
		return err == nil
	})
	return &controlPlane{client: api, dir: dir}
}

// wait waits for a condition.
func wait(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// freePorts returns ports of the loopback interface that nothing uses.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func randomHex(t *testing.T) string {
	t.Helper()
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(bytes)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
