package openai

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// Endpoints that templates can use.
const (
	Chat        = "chat"
	Completions = "completions"
	Embeddings  = "embeddings"
)

// What becomes of truncated answers.
const (
	TruncatedKeep = "keep"
	TruncatedFail = "fail"
)

// paths lead to the endpoints, from the base URL on.
var paths = map[string]string{Chat: "/chat/completions", Completions: "/completions", Embeddings: "/embeddings"}

const (
	defaultConcurrency = 64
	defaultTimeout     = 600 * time.Second
	defaultMaxOutage   = 300 * time.Second
	defaultMaxBody     = 64 << 20
	defaultKeyVariable = "OPENAI_API_KEY"
)

// Options are the configuration of the kernel.
type Options struct {
	// Model is the model that templates ask for.
	Model string `json:"model"`
	// Endpoint is Chat (the default), Completions or Embeddings.
	Endpoint string `json:"endpoint"`
	// Prompt is the template of the request: {text} stands for the member text, {a.b} for
	// a member of a member, {{ and }} for braces. Without it, records are lines of a batch
	// file.
	Prompt string `json:"prompt"`
	// System is the template of a chat's system message; empty for none.
	System string `json:"system"`
	// Images are members that hold the URL of an image, or the image as a data URL, or a
	// list of those. A chat's message contains them after the prompt.
	Images []string `json:"images"`
	// Body has further members of each request's body, for example {"temperature":0}.
	Body map[string]json.RawMessage `json:"body"`
	// Output is the member that gets the answer: by default response, or embedding.
	Output string `json:"output"`
	// Concurrency is how many requests are in flight at most.
	Concurrency int `json:"concurrency"`
	// Timeout is how many seconds a request may take.
	Timeout float64 `json:"timeout"`
	// MaxOutage is how many seconds to wait for a server that can no longer be reached,
	// before the job stops.
	MaxOutage float64 `json:"max_outage"`
	// APIKeyEnv names the environment variable with the API key. Without such a variable,
	// requests carry no key; a remote server then is an error. A server that the caller of
	// [For] runs has no default.
	APIKeyEnv string `json:"api_key_env"`
	// Headers are sent with every request. They are part of the job's settings, which are
	// stored: use APIKeyEnv for secrets.
	Headers map[string]string `json:"headers"`
	// MaxBody is the largest answer in bytes.
	MaxBody int64 `json:"max_body"`
	// Truncated is what becomes of an answer that the server cuts off at a limit of tokens:
	// TruncatedKeep (the default) or TruncatedFail.
	Truncated string `json:"truncated"`
	// KeepAlive is whether requests may follow each other on a connection.
	KeepAlive bool `json:"keep_alive"`
}

// settings are options that have been checked.
type settings struct {
	Options
	base      *url.URL
	endpoint  *url.URL // of requests that templates make
	prompt    template
	system    template
	form      *form            // of the requests' bodies; nil if they have images or come from a batch file
	output    *jsonline.Wanted // the member that gets the answer
	several   bool             // a request asks for several choices
	key       string
	timeout   time.Duration
	maxOutage time.Duration
	known     bool    // OpenAIConfig.Known
	server    *Server // nil unless the caller of the kernel runs it
}

// parse checks the configuration. server is nil unless the caller of the kernel runs it.
func parse(config plugins.Config, server *Server) (settings, error) {
	c := resolve.OpenAIConfig{}
	if err := config.Decode(&c); err != nil {
		return settings{}, err
	}
	s := settings{Options: Options{
		Endpoint: Chat, Concurrency: defaultConcurrency, Timeout: defaultTimeout.Seconds(), MaxOutage: defaultMaxOutage.Seconds(),
		APIKeyEnv: defaultKeyVariable, MaxBody: defaultMaxBody, KeepAlive: true, Truncated: TruncatedKeep,
	}, known: c.Known, server: server}
	if server != nil {
		// A key of the environment is for a service: the caller's server gets one only if
		// the configuration says so.
		s.Concurrency, s.APIKeyEnv = server.Concurrency, ""
	}
	if err := plugins.Config(c.Config).Decode(&s.Options); err != nil {
		return settings{}, err
	}
	var err error
	if s.base, err = parseBase(c.URL); err != nil {
		return settings{}, err
	}
	if s.prompt, err = parseTemplate(s.Prompt); err != nil {
		return settings{}, bad("prompt: %w", err)
	}
	if s.system, err = parseTemplate(s.System); err != nil {
		return settings{}, bad("system: %w", err)
	}
	if err := s.check(); err != nil {
		return settings{}, err
	}
	if s.endpoint, err = s.below(paths[s.Endpoint]); err != nil {
		return settings{}, bad("%w", err)
	}
	n, _ := strconv.ParseFloat(string(s.Body["n"]), 64)
	s.several = n > 1
	s.timeout, s.maxOutage = Seconds(s.Timeout), Seconds(s.MaxOutage)
	if s.Output == "" {
		s.Output = "response"
		if s.Endpoint == Embeddings {
			s.Output = "embedding"
		}
	}
	return s, s.findKey()
}

// inputs returns the members that templates read, or one that a line of a batch file has.
func (s *settings) inputs() (names []string) {
	if s.Prompt == "" {
		return []string{"custom_id"}
	}
	for _, name := range slices.Concat(s.prompt.members(), s.system.members(), s.Images) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// LeastSeconds is the shortest time limit that a configuration may set.
const LeastSeconds = 0.001

// Seconds returns a duration of at most a hundred years.
func Seconds(n float64) time.Duration {
	return time.Duration(min(n, 100*365*24*3600) * float64(time.Second))
}

func bad(format string, args ...any) error {
	return fault.KernelConfig.New("kernel configuration: "+format, args...)
}

// parseBase parses the URL after openai:.
func parseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fault.BadURL.New("openai:%s is not a URL: write openai:http://HOST:PORT/v1", text)
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fault.BadURL.New("openai: takes a URL without a user, a query or a fragment; put an API key in the environment")
	}
	base.Path = strings.TrimRight(base.Path, "/")
	return base, nil
}

// below returns the URL of a path below the base URL.
func (s *settings) below(path string) (*url.URL, error) { return url.Parse(s.base.String() + path) }

// elsewhere suggests the URL that most servers have, if this one answers that there is nothing.
func (s *settings) elsewhere() string {
	if strings.Contains(s.base.Path, "/v1") {
		return ""
	}
	return fmt.Sprintf("; is %s/v1 the right URL?", s.base)
}

func (s *settings) check() error {
	switch {
	case paths[s.Endpoint] == "":
		return bad("endpoint %q: use %s, %s or %s", s.Endpoint, Chat, Completions, Embeddings)
	case s.Concurrency < 1 || s.Concurrency > plugins.MaxConcurrency:
		return bad("concurrency %d: use a number from 1 to %d", s.Concurrency, plugins.MaxConcurrency)
	case s.Timeout < LeastSeconds:
		return bad("timeout %v: use a number of seconds", s.Timeout)
	case s.MaxOutage < 0:
		return bad("max_outage %v: use a number of seconds", s.MaxOutage)
	case s.Truncated != TruncatedKeep && s.Truncated != TruncatedFail:
		return bad("truncated %q: use %s or %s", s.Truncated, TruncatedKeep, TruncatedFail)
	case s.MaxBody < 1:
		return bad("max_body %d: use a number of bytes", s.MaxBody)
	case s.Prompt == "" && (s.System != "" || len(s.Images) > 0 || s.Model != "" || s.Output != "" || len(s.Body) > 0):
		return bad("there is no prompt, so records are lines of a batch file: model, system, images, output and body have no effect")
	case s.Prompt != "" && s.Model == "" && s.server == nil:
		return bad("model is missing")
	case s.Endpoint != Chat && (s.System != "" || len(s.Images) > 0):
		return bad("system and images are for endpoint %s", Chat)
	}
	for _, name := range []string{"model", "messages", "prompt", "input", "stream"} {
		if _, ok := s.Body[name]; ok {
			return bad("body sets %q, which gpurun sets itself", name)
		}
	}
	for name, value := range s.Headers {
		switch {
		case !headerName.MatchString(name):
			return bad("headers: %q is not the name of a header", name)
		case !isHeaderValue(value):
			return bad("headers: the value of %s has a character that no header can have", name)
		}
		if slices.Contains([]string{"Content-Type", "Content-Length", "Host"}, http.CanonicalHeaderKey(name)) {
			return bad("headers set %s, which gpurun sets itself", name)
		}
	}
	return nil
}

var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// findKey reads the API key. Only a server on this machine may do without.
func (s *settings) findKey() error {
	s.key = strings.TrimSpace(os.Getenv(s.APIKeyEnv))
	if !isHeaderValue(s.key) {
		return fault.NoAPIKey.New("the API key in the environment variable %s has a character that no header can have, for example a line break", s.APIKeyEnv)
	}
	if s.key != "" || s.hasAuthorization() || isLocal(s.base.Hostname()) {
		return nil
	}
	return fault.NoAPIKey.New("no API key for %s: set the environment variable %s", s.base.Host, s.APIKeyEnv)
}

func (s *settings) hasAuthorization() bool {
	for name := range s.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	return false
}

// isLocal reports whether a host is on this machine or in a private network.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsPrivate())
}
