package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

// Server is a server that the caller of [For] runs itself.
type Server struct {
	// Dial connects to it; nil connects to the host of the URL.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Concurrency is the default of Options.Concurrency.
	Concurrency int
}

// For returns the kernel for a server that the caller runs. The server names the model if
// the configuration does not.
func For(server Server) plugins.Concurrent { return &kernel{server: &server} }

type kernel struct {
	plugins.Base
	server   *Server // nil for a server that someone else runs
	settings settings
	client   *client
}

// Describe checks the configuration. It does not ask the server.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	s, err := parse(config, k.server)
	if err != nil {
		return plugins.Info{}, err
	}
	return plugins.Info{Name: "openai:" + s.base.String(), Concurrency: s.Concurrency, RecordTimeout: s.timeout, Inputs: s.inputs(), NeedsInputs: true, NoDevice: true, ReadsFetched: len(s.Images) > 0}, nil
}

// Open prepares the client, and checks that there is a server.
func (k *kernel) Open(ctx context.Context, _ plugins.Device, config plugins.Config) error {
	var err error
	s := &k.settings
	if *s, err = parse(config, k.server); err != nil {
		return err
	}
	k.client = newClient(s)
	if err := k.client.reach(ctx); err != nil {
		return err
	}
	if s.Prompt != "" && s.Model == "" {
		if s.Model, err = k.client.onlyModel(ctx); err != nil {
			return err
		}
	}
	s.form, s.output = s.makeForm(), jsonline.Want(s.Output)
	return nil
}

// Answer sends the record's request.
func (k *kernel) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	sent, err := k.settings.request(record)
	if err != nil {
		return plugins.Rejected("%s", err)
	}
	got, instead := k.client.send(ctx, sent)
	if instead != nil {
		return *instead
	}
	a := k.settings.answer(record, sent, got)
	a.Figures = got.figures()
	return a
}

// Process sends the requests of a batch.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, k.settings.Concurrency, batch, results)
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
