package serve

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shell"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/openai"
	"github.com/gpurun/gpurun/plugins/resolve"
)

const (
	// defaultConcurrency suits servers that batch continuously on one GPU: some of them
	// compute 256 requests at a time by default.
	defaultConcurrency = 256
	// defaultHealthTimeout is how long a server may answer nothing at all. One that is
	// busy may need a while.
	defaultHealthTimeout = 60 * time.Second
)

// placeTries is how often a server that finds its port taken is started.
const placeTries = 3

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

type kernel struct {
	client plugins.Concurrent
	server *server
	count  int // Info.Concurrency
}

// settings are the configuration of the kernel.
type settings struct {
	command       string
	healthTimeout time.Duration
	client        json.RawMessage // what is left for package openai
}

// parse checks the configuration, except for what the client has to check.
func parse(config plugins.Config) (settings, error) {
	c := resolve.ServeConfig{}
	if err := config.Decode(&c); err != nil {
		return settings{}, err
	}
	s := settings{command: c.Command, healthTimeout: defaultHealthTimeout, client: c.Config}
	if !strings.Contains(c.Command, portHolder) && !strings.Contains(c.Command, socketHolder) {
		return s, fault.KernelConfig.New("serve: the command does not say where the server listens: write %s for a free port in it, or %s for the path of a unix socket", portHolder, socketHolder)
	}
	if len(c.Config) == 0 {
		return s, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(c.Config, &members); err != nil {
		return s, fault.KernelConfig.New("kernel configuration: %w", err)
	}
	if value, ok := members[healthMember]; ok {
		var seconds float64
		if json.Unmarshal(value, &seconds) != nil || seconds < openai.LeastSeconds {
			return s, fault.KernelConfig.New("kernel configuration: %s %s: use a number of seconds", healthMember, value)
		}
		s.healthTimeout = openai.Seconds(seconds)
		delete(members, healthMember)
	}
	var err error
	s.client, err = json.Marshal(members)
	return s, err
}

const healthMember = "health_timeout"

// clientConfig returns the configuration of the client of a server.
func (s settings) clientConfig(base string) plugins.Config {
	config, _ := json.Marshal(resolve.OpenAIConfig{URL: base, Config: s.client}) // it is valid JSON
	return config
}

// Describe checks the command and the configuration. It does not start the server.
func (k *kernel) Describe(ctx context.Context, config plugins.Config) (plugins.Info, error) {
	s, err := parse(config)
	if err != nil {
		return plugins.Info{}, err
	}
	info, err := openai.For(openai.Server{Concurrency: defaultConcurrency}).Describe(ctx, s.clientConfig("http://127.0.0.1/v1"))
	if err != nil {
		return plugins.Info{}, err
	}
	info.Name, info.NoDevice = "serve:"+s.command, false
	return info, shell.Check("serve", s.command)
}

// Open starts the server and waits until it is ready.
func (k *kernel) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	s, err := parse(config)
	if err != nil {
		return err
	}
	for range placeTries {
		if k.server, err = start(s.command, device); err != nil {
			return err
		}
		if err = k.server.awaitReady(ctx); err == nil || !k.server.wasTaken() {
			break
		}
		k.server.end() // another program was faster: choose another place
	}
	if err != nil {
		return err
	}
	client := openai.For(openai.Server{Dial: k.server.dial, Concurrency: defaultConcurrency})
	inner := s.clientConfig(k.server.place.url + "/v1")
	info, err := client.Describe(ctx, inner)
	if err == nil {
		err = client.Open(ctx, device, inner)
	}
	if err != nil {
		return k.server.explain(err)
	}
	k.client, k.count = client, info.Concurrency
	k.server.watch(s.healthTimeout)
	return nil
}

// Answer sends the record to the server. If the server is lost, all records that it has are
// answered with a crash.
func (k *kernel) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	if k.server.isLost() {
		return plugins.FailedBy(k.server.loss())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.server.lost, func() {
		<-k.server.settled // what it has sent counts
		cancel()
	})()
	a := k.client.Answer(ctx, record)
	k.server.answered(a)
	switch a.Verdict {
	case plugins.Retry: // perhaps because the server exits
		k.server.awaitLoss(ctx, retryGrace)
	case plugins.Later: // it no longer listens
		k.server.awaitLoss(ctx, laterGrace)
	default:
		return a
	}
	if k.server.isLost() {
		return plugins.FailedBy(k.server.loss())
	}
	return a
}

// Process sends the records of a batch to the server.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, k.count, batch, results)
}

// Close ends the server.
func (k *kernel) Close() error {
	if k.client != nil {
		_ = k.client.Close()
	}
	if k.server != nil {
		k.server.end()
	}
	return nil
}
