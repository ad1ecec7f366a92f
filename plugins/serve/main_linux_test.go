package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes the test binary act as a model server. Its argument is the port or the
// socket; the value of the variable says what kind of server it is.
const roleVariable = "GPURUN_TEST_SERVER"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	switch role := os.Getenv(roleVariable); {
	case role == "squatter":
		squatter(os.Args[1])
		return
	case role == "kernel":
		kernelProcess(os.Args[1])
		return
	case role != "":
		modelServer(role, os.Args[1])
		return
	}
	os.Exit(m.Run())
}

// command returns the command that starts a model server.
func command(role string) string {
	where := portHolder
	if role == "socket" {
		where = socketHolder
	}
	return fmt.Sprintf("%s=%q %s %s {gpus}", roleVariable, role, os.Args[0], where)
}

func modelServer(role, where string) {
	fmt.Println("the server starts with", os.Args[2], "GPUs")
	network, address := "tcp", "127.0.0.1:"+where
	switch name, argument, _ := strings.Cut(role, " "); name {
	case "socket":
		network, address = "unix", where
	case "all addresses":
		address = ":" + where // of both IP versions
	case "never":
		fmt.Println("loading for ever")
		time.Sleep(time.Hour)
	case "exit":
		fmt.Fprintln(os.Stderr, "no such model")
		os.Exit(3)
	case "taken":
		if _, err := os.Stat(argument); err != nil {
			_ = os.WriteFile(argument, nil, 0o666)
			fmt.Println("OSError: [Errno 98] Address already in use")
			os.Exit(1)
		}
	case "silent": // a model that takes long to load: the port is free
		publish(argument, where)
		time.Sleep(time.Hour)
	case "family": // a child in its own session that outlives the server
		child := exec.Command("sleep", argument)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = child.Start()
	}
	listener, err := net.Listen(network, address)
	leave = listener
	if err != nil {
		panic(err)
	}
	began := time.Now()
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case role == "without /health" && r.URL.Path == "/health":
			w.WriteHeader(http.StatusNotFound)
		case role == "slow start" && time.Since(began) < 300*time.Millisecond:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/health":
		case r.URL.Path == "/v1/models":
			fmt.Fprint(w, `{"object":"list","data":[{"id":"tiny"}]}`)
		default:
			complete(w, r)
		}
	}))
	time.Sleep(time.Hour) // it no longer listens, but runs
}

// leave is the listener that the text leave closes.
var leave net.Listener

// complete answers a request; its text says how.
func complete(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    string
		Messages []struct{ Content string }
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	text := body.Messages[len(body.Messages)-1].Content
	switch text {
	case "exit":
		time.Sleep(200 * time.Millisecond)
		fmt.Println("out of paper")
		os.Exit(9)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour) // until the signal arrives
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "hang":
		<-r.Context().Done()
	case "leave":
		_ = leave.Close()
		panic(http.ErrAbortHandler)
	case "key":
		text += " " + r.Header.Get("Authorization")
	case "close":
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": body.Model + ": " + text}}}})
}
