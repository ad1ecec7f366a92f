package openai

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/gpurun/gpurun/plugins"
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

type kernel struct {
	plugins.Base
	client *client
}

// Describe checks the configuration. It does not ask the server.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	s, err := parse(config)
	if err != nil {
		return plugins.Info{}, err
	}
	return plugins.Info{Name: "openai:" + s.base.String(), Concurrency: s.Concurrency, Inputs: s.inputs()}, nil
}

// inputs returns the members that templates read.
func (s *settings) inputs() []string {
	if s.Prompt == "" {
		return nil
	}
	seen, names := map[string]bool{}, []string(nil)
	for _, name := range append(append(s.prompt.members(), s.system.members()...), s.Images...) {
		if !seen[name] {
			names = append(names, name)
		}
		seen[name] = true
	}
	return names
}

// Open prepares the client. The first request opens the first connection.
func (k *kernel) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	s, err := parse(config)
	if err == nil {
		k.client = newClient(&s)
	}
	return err
}

// Answer sends the record's request.
func (k *kernel) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	sent, err := k.client.request(record)
	if err != nil {
		return plugins.Rejected("%s", err)
	}
	got, instead := k.client.send(ctx, sent)
	if instead != nil {
		return *instead
	}
	return k.client.answer(record, sent, got)
}

// Process sends the requests of a batch.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, k.client.Concurrency, batch, results)
}

// Close closes idle connections.
func (k *kernel) Close() error {
	if k.client != nil {
		k.client.http.CloseIdleConnections()
	}
	return nil
}

// encode returns the JSON of a value, without HTML's escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // only strings, numbers and valid JSON are encoded
	return bytes.TrimSpace(b.Bytes())
}
