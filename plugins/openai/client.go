package openai

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/keepalive"
	"github.com/gpurun/gpurun/plugins"
)

// client sends requests to one server.
type client struct {
	settings *settings
	http     *http.Client
	outage   outage
	refused  refusals
	post     *http.Request // what all requests for records have in common
}

func newClient(s *settings) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, s.Concurrency
	transport.MaxConnsPerHost = s.Concurrency + 2 // pings need no turn
	transport.DisableKeepAlives = !s.KeepAlive
	if s.server != nil && s.server.Dial != nil {
		transport.DialContext = s.server.Dial
	}
	transport.DialContext = keepalive.Dialer(transport.DialContext)
	c := &client{settings: s, outage: outage{asking: make(chan struct{}, 1)}, http: &http.Client{
		Transport: transport,
		// A server that redirects is the wrong one. Following it could send the key and
		// the records elsewhere. A transport alone, as for requests, follows none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.post = &http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: c.header(), Host: c.settings.base.Host}
	c.post.Header.Set("Content-Type", jsonType)
	return c
}

// send sends a request and returns the server's good answer, or what becomes of the record
// instead.
func (c *client) send(ctx context.Context, r request) (reply, *plugins.Answer) {
	if !c.available(ctx) {
		return reply{}, new(c.tryLater())
	}
	got, instead, doubtful := c.exchange(ctx, r)
	if stop := c.refuses(instead); stop != nil {
		return reply{}, stop
	}
	if doubtful && c.isLost(ctx) {
		later := c.tryLater()
		later.Figures = map[string]int64{figures.Requests: 1} // it may have arrived
		return reply{}, &later
	}
	return got, instead
}

// again is the answer for a record whose request may succeed at another attempt.
func again(server plugins.ServerState, format string, args ...any) *plugins.Answer {
	a := plugins.RetryAfter(0, format, args...)
	a.Server = server
	return &a
}

// exchange sends a request. doubtful: perhaps the server cannot be reached at all.
func (c *client) exchange(ctx context.Context, r request) (got reply, instead *plugins.Answer, doubtful bool) {
	limited, cancel := c.limited(ctx)
	defer cancel()
	response, body, err := c.roundTrip(limited, r)
	switch {
	case err == nil:
		return c.read(response, body)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		instead = again(plugins.ServerOverloaded, "the server did not answer within the time limit of a record")
	case ctx.Err() != nil:
		instead = again(plugins.ServerUnknown, "the request was canceled")
	case errors.Is(err, context.DeadlineExceeded):
		doubtful = true
		instead = again(plugins.ServerOverloaded, "the server did not answer within %s, which timeout in the kernel configuration sets", c.settings.timeout)
	case errors.Is(err, errTooLarge):
		instead = new(plugins.Rejected("%s", err))
	case isCertificate(err):
		instead = new(plugins.FailedBy(c.distrusted(err)))
	default:
		doubtful = true
		instead = again(plugins.ServerUnknown, "the connection failed: %s", c.redact(plain(err)))
	}
	return got, instead, doubtful
}

// read reads a response that has arrived.
func (c *client) read(response *http.Response, body []byte) (got reply, instead *plugins.Answer, doubtful bool) {
	status := response.StatusCode
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case retriable(status):
		instead = new(plugins.RetryAfter(min(keepalive.RetryAfter(response.Header, time.Now()), c.settings.maxOutage), "%s", c.problem(response, body)))
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			instead.Server = plugins.ServerRefuses
		}
		return got, instead, unavailable(status)
	case status != http.StatusOK:
		return got, new(plugins.Rejected("%s", c.problem(response, body))), false
	case kind != jsonType:
		return got, new(plugins.Rejected("the server answered with %q, not with JSON: is %s the right URL?", kind, c.settings.base)), false
	}
	got = reply{status: status, requestID: strings.ToValidUTF8(response.Header.Get("X-Request-Id"), "\ufffd")}
	switch err := got.read(body); {
	case errors.Is(err, errNotJSON):
		instead = again(plugins.ServerUnknown, "the server's answer %s", err)
	case err != nil:
		instead = new(plugins.Rejected("the server's answer %s", err))
	}
	return got, instead, false
}

// limited returns a context with the time limit of a request, or of its record if that
// ends earlier.
func (c *client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if until, has := ctx.Deadline(); has && time.Until(until) <= c.settings.timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.settings.timeout)
}

const jsonType = "application/json"

var errTooLarge = errors.New("the server's answer is too large")

func (c *client) roundTrip(ctx context.Context, r request) (*http.Response, []byte, error) {
	ctx, last := keepalive.Trace(ctx)
	req := c.post.WithContext(ctx) // the transport does not change the header
	var valid lease
	defer valid.end()
	req.URL, req.ContentLength = r.url, r.size()
	req.GetBody = func() (io.ReadCloser, error) { return r.reader(&valid), nil }
	req.Body, _ = req.GetBody()
	response, err := c.http.Transport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		last() // a gateway may give up before the server behind it answers after all
	}
	if response.ContentLength > c.settings.MaxBody {
		return nil, nil, c.tooLarge()
	}
	var body bytes.Buffer // grows with what arrives, whatever the length claims
	body.Grow(int(min(max(response.ContentLength, 0), firstRead)) + bytes.MinRead)
	_, err = body.ReadFrom(io.LimitReader(response.Body, max(c.settings.MaxBody, c.settings.MaxBody+1)))
	if err == nil && int64(body.Len()) > c.settings.MaxBody {
		err = c.tooLarge()
	}
	return response, body.Bytes(), err
}

// firstRead is the most memory that an answer gets before it has arrived.
const firstRead = 64 << 10

func (c *client) tooLarge() error {
	return fmt.Errorf("%w: over %d bytes, which max_body in the kernel configuration sets", errTooLarge, c.settings.MaxBody)
}

// header returns the headers that all requests have.
func (c *client) header() http.Header {
	h := http.Header{"User-Agent": {"gpurun"}} // some services block Go's default
	for name, value := range c.settings.Headers {
		h.Set(name, value)
	}
	h.Set("Accept", jsonType)
	if c.settings.key != "" && h.Get("Authorization") == "" {
		h.Set("Authorization", "Bearer "+c.settings.key)
	}
	return h
}

// retriable reports whether the same request may succeed later.
func retriable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// problem describes an answer that is not good: its status and the server's message.
func (c *client) problem(response *http.Response, body []byte) string {
	text := fmt.Sprintf("the server answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	if where := response.Header.Get("Location"); where != "" && response.StatusCode < 400 {
		return c.redact(text + ": it redirects to " + where + ", which gpurun does not follow: is " + c.settings.base.String() + " the right URL?")
	}
	said := serverMessage(body)
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); said == "" && kind == "text/plain" {
		said = shortened(string(body))
	}
	if said != "" {
		text += ": " + said
	}
	if response.StatusCode == http.StatusUnauthorized {
		text += "; " + c.keyUsed()
	}
	if response.StatusCode == http.StatusNotFound {
		text += c.settings.elsewhere()
	}
	return c.redact(text)
}

// keyUsed describes the API key that requests have.
func (c *client) keyUsed() string {
	switch {
	case c.settings.hasAuthorization():
		return "the Authorization header of the kernel configuration was sent"
	case c.settings.APIKeyEnv == "":
		return "no API key was sent: name the environment variable that has it with api_key_env in the kernel configuration"
	case c.settings.key == "":
		return "no API key was sent: set the environment variable " + c.settings.APIKeyEnv
	}
	return "the API key comes from the environment variable " + c.settings.APIKeyEnv
}

// serverMessage returns the message in the body of an error, in the forms that servers use.
func serverMessage(body []byte) string {
	var form struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &form) != nil {
		return ""
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(form.Error, &inner) == nil && inner.Message != "":
		text = inner.Message
	case json.Unmarshal(form.Error, &text) == nil && text != "":
	case form.Message != "":
		text = form.Message
	case len(form.Detail) > 0 && json.Unmarshal(form.Detail, &text) != nil:
		text = string(form.Detail)
	}
	return shortened(text)
}

// shortened returns a server's text as a part of a message: on one line, and not too long.
func shortened(text string) string {
	const most = 500
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + " …"
	}
	return text
}

// redact removes the API key from a text.
func (c *client) redact(text string) string {
	if c.settings.key == "" {
		return text
	}
	return strings.ReplaceAll(text, c.settings.key, "…")
}

// plain returns an error without the method and URL that net/http adds: the message then
// is the same for every record.
func plain(err error) string {
	for {
		if proxy, ok := err.(*net.OpError); ok && proxy.Op == "proxyconnect" {
			return "the proxy that the environment names does not answer: " + plain(proxy.Err)
		}
		inner := errors.Unwrap(err)
		switch {
		case inner != nil:
			err = inner
		case errors.Is(err, io.EOF):
			return "the server closed the connection without an answer"
		case errors.Is(err, io.ErrUnexpectedEOF):
			return "the server closed the connection in the middle of its answer"
		default:
			return err.Error()
		}
	}
}

func isCertificate(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// distrusted is the error for a certificate that does not verify.
func (c *client) distrusted(err error) error {
	e := fault.BadCertificate.New("the certificate of %s does not verify: %s", c.settings.base.Host, plain(err))
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		e.Message += "; to trust another authority, name a file with its certificate in the environment variable SSL_CERT_FILE"
	}
	return e
}
