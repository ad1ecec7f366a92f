package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A table of hostile requests and the answer to each. None of them reaches the job.
func TestHostileRequests(t *testing.T) {
	s := serveJob(t, Access{Token: token, Hosts: []string{"gpu.example"}})
	s.job.follow(planned())
	_, port, _ := net.SplitHostPort(s.address)
	huge := strings.Repeat("x", 2*maxBody)
	const pause = "POST /api/jobs/3fa9c201/pause HTTP/1.1\r\n"
	host := "Host: " + s.address + "\r\n"
	bearer := "Authorization: Bearer " + token + "\r\n"
	asJSON := "Content-Type: application/json\r\n"
	for name, test := range map[string]struct{ request, want string }{
		// methods
		"unknown path":               {"GET /api/nothing HTTP/1.1\r\n" + host + "\r\n", "404"},
		"unknown job":                {"GET /api/jobs/deadbeef HTTP/1.1\r\n" + host + "\r\n", "404"},
		"wrong method":               {"GET /api/jobs/3fa9c201/pause HTTP/1.1\r\n" + host + "\r\n", "405"},
		"wrong method with a token":  {"DELETE /api/jobs/3fa9c201 HTTP/1.1\r\n" + host + bearer + "\r\n", "405"},
		"made-up method":             {"FROB /api/jobs HTTP/1.1\r\n" + host + "\r\n", "401"},
		"TRACE":                      {"TRACE / HTTP/1.1\r\n" + host + bearer + "\r\n", "405"},
		"CONNECT":                    {"CONNECT example.com:443 HTTP/1.1\r\n" + host + "\r\n", "421"},
		"no HTTP":                    {"\x00\x01\x02\r\n\r\n", "400"},
		"HTTP/2 without being asked": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "421"},
		"two hosts":                  {"GET / HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n", "400"},
		"smuggled request":           {pause + host + asJSON + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /x", "401"},
		"a header on two lines":      {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", "200"},
		"a newline in the path":      {"GET /api/%0d%0ajobs HTTP/1.1\r\n" + host + "\r\n", "404"},
		"an absolute address":        {"GET http://evil.example/api/jobs HTTP/1.1\r\n" + host + "\r\n", "421"},
		// bodies
		"huge body":      {fmt.Sprintf(pause+host+bearer+asJSON+"Content-Length: %d\r\n\r\n%s", len(huge), huge), "413"},
		"huge chunks":    {fmt.Sprintf(pause+host+bearer+asJSON+"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(huge), huge), "413"},
		"huge header":    {"GET / HTTP/1.1\r\n" + host + "X: " + huge + "\r\n\r\n", "431"},
		"huge path":      {"GET /" + huge + " HTTP/1.1\r\n" + host + "\r\n", "431"},
		"endless length": {pause + host + bearer + asJSON + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
		"negative":       {pause + host + bearer + asJSON + "Content-Length: -1\r\n\r\n", "400"},
		"a form":         {pause + host + bearer + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1\r\n\r\na", "415"},
		"plain text":     {pause + host + bearer + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415"},
		"no type":        {pause + host + bearer + "Content-Length: 2\r\n\r\n{}", "415"},
		// paths
		"way out of the tree":     {"GET /assets/../../../etc/passwd HTTP/1.1\r\n" + host + "\r\n", "307"},
		"encoded way out":         {"GET /assets/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + host + "\r\n", "404"},
		"encoded slashes":         {"GET /assets/..%2f..%2fetc%2fpasswd HTTP/1.1\r\n" + host + "\r\n", "404"},
		"backslashes":             {"GET /assets/..\\..\\etc\\passwd HTTP/1.1\r\n" + host + "\r\n", "404"},
		"an absolute file":        {"GET /assets//etc/passwd HTTP/1.1\r\n" + host + "\r\n", "307"},
		"a null byte":             {"GET /assets/style.css%00.txt HTTP/1.1\r\n" + host + "\r\n", "404"},
		"the source of the page":  {"GET /assets/ HTTP/1.1\r\n" + host + "\r\n", "404"},
		"a job that is a path":    {"GET /api/jobs/..%2f..%2fetc HTTP/1.1\r\n" + host + "\r\n", "404"},
		"a cursor that is a path": {"GET /api/jobs/3fa9c201/failures?after=../x HTTP/1.1\r\n" + host + "\r\n", "400"},
		// tokens
		"no token":              {pause + host + "\r\n", "401"},
		"a wrong token":         {pause + host + "Authorization: Bearer 0123456789abcdee\r\n\r\n", "401"},
		"half a token":          {pause + host + "Authorization: Bearer 01234567\r\n\r\n", "401"},
		"an empty token":        {pause + host + "Authorization: Bearer \r\n\r\n", "401"},
		"a token as a password": {pause + host + "Authorization: Basic " + token + "\r\n\r\n", "401"},
		"a token in the query":  {"POST /api/jobs/3fa9c201/pause?token=" + token + " HTTP/1.1\r\n" + host + "\r\n", "401"},
		"a token in a cookie":   {pause + host + "Cookie: token=" + token + "\r\n\r\n", "401"},
		// other sites
		"cross-site POST":               {pause + host + bearer + "Origin: https://evil.example\r\n\r\n", "403"},
		"cross-site GET":                {"GET /api/jobs HTTP/1.1\r\n" + host + "Origin: https://evil.example\r\n\r\n", "403"},
		"POST from a sandbox":           {pause + host + bearer + "Origin: null\r\n\r\n", "403"},
		"another port of this host":     {pause + host + bearer + "Origin: http://127.0.0.1:1\r\n\r\n", "403"},
		"cross-site by its own account": {"GET /api/jobs HTTP/1.1\r\n" + host + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n\r\n", "403"},
		"an image of another site":      {"GET /metrics HTTP/1.1\r\n" + host + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", "403"},
		"DNS rebinding":                 {"GET /api/jobs HTTP/1.1\r\nHost: evil.example:" + port + "\r\n\r\n", "421"},
		"DNS rebinding with a token":    {pause + "Host: evil.example\r\n" + bearer + "\r\n", "421"},
		"a name that looks like ours":   {"GET /api/jobs HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", "421"},
		"a name with our address in it": {"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", "421"},
		"an empty host":                 {"GET /api/jobs HTTP/1.1\r\nHost: \r\n\r\n", "421"},
		"preflight of another site":     {"OPTIONS /api/jobs/3fa9c201/pause HTTP/1.1\r\n" + host + "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", "403"},
		// and these are fine
		"a link to the page":  {"GET / HTTP/1.1\r\n" + host + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", "200"},
		"the page's own":      {"GET /api/jobs HTTP/1.1\r\n" + host + "Sec-Fetch-Site: same-origin\r\n\r\n", "200"},
		"localhost":           {"GET /api/jobs HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n", "200"},
		"a name that we have": {"GET /api/jobs HTTP/1.1\r\nHost: GPU.example\r\n\r\n", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			go func() { _, _ = io.WriteString(conn, test.request) }()
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if !strings.Contains(line, " "+test.want) {
				t.Errorf("got %q, want %s", line, test.want)
			}
		})
	}
	if s.control.changed() {
		t.Error("one of them got through")
	}
	if status, _ := s.do("POST", "/api/jobs/3fa9c201/pause", "{}"); status != http.StatusOK || !s.control.changed() {
		t.Errorf("after all of them, an honest request gets %d", status)
	}
}

// On an address that others can reach, reading needs the token too; the page itself and the
// health do not.
func TestReadToken(t *testing.T) {
	s := serveJob(t, Access{Token: token, ReadToken: true})
	for path, want := range map[string]int{
		"/": 200, "/assets/style.css": 200, "/healthz": 200, "/readyz": 200, "/openapi.json": 200,
		"/api/jobs": 401, "/api/jobs/3fa9c201": 401, "/api/jobs/3fa9c201/events": 401, "/metrics": 401, "/nothing": 401,
	} {
		response, err := s.client.Get("http://" + s.address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	if status, _ := s.do("GET", "/metrics", ""); status != 200 {
		t.Errorf("with the token: %d", status)
	}
}

// Every response tells browsers to keep it to themselves.
func TestHeaders(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	for _, path := range []string{"/", "/assets/style.css", "/api/jobs", "/nothing", "/metrics"} {
		response, err := s.client.Get("http://" + s.address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		h := response.Header
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// Slow and silent clients do not keep others from being served.
func TestSlowClients(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	for range 100 { // more than the server serves at a time
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /api/jo")
	}
	s.client.Timeout = time.Minute
	var list JobList
	s.get("/api/jobs", &list)
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := ReadToken(path)
	if err != nil || len(first) < 32 {
		t.Fatalf("%q %v", first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if again, err := ReadToken(path); err != nil || again != first {
		t.Errorf("%q, then %q %v", first, again, err)
	}
	for name, damage := range map[string]func() error{
		"short":            func() error { return os.WriteFile(path, []byte("short\n"), 0o600) },
		"two words":        func() error { return os.WriteFile(path, []byte("0123456789abcdef 0123456789abcdef"), 0o600) },
		"empty":            func() error { return os.WriteFile(path, nil, 0o600) },
		"read by everyone": func() error { return os.Chmod(path, 0o644) },
		"a folder":         func() error { return os.Remove(path) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if name == "a folder" {
			_ = os.Mkdir(path, 0o700)
		}
		if got, err := ReadToken(path); err == nil {
			t.Errorf("%s: %q", name, got)
		}
		_ = os.RemoveAll(path)
		if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
