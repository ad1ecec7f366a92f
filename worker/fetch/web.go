package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/keepalive"
)

// web fetches URLs.
type web struct {
	transport *http.Transport
	hosts     *hosts
	timeout   time.Duration
	retries   int
	limits    limits
}

func newWeb(o Options) *web {
	dialer := &net.Dialer{Timeout: o.limits.connect, KeepAlive: 30 * time.Second}
	var proxy func(*http.Request) (*url.URL, error)
	switch {
	case o.permit != nil:
		dialer.Control = guard(o.permit)
	case o.AllowPrivate:
		proxy = http.ProxyFromEnvironment
	default:
		dialer.Control = guard(func(to netip.AddrPort) bool { return isPublic(to.Addr()) })
	}
	return &web{
		transport: &http.Transport{
			DialContext: keepalive.Dialer(dialer.DialContext), Proxy: proxy, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: o.limits.connect, ResponseHeaderTimeout: o.limits.firstByte,
			MaxIdleConns: o.Concurrency, MaxIdleConnsPerHost: o.PerHost, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			// The body is decompressed here, where its size is limited.
			DisableCompression: true,
		},
		hosts: &hosts{limit: o.PerHost, rooms: make(map[string]*hostRoom)}, timeout: o.Timeout, retries: o.Retries, limits: o.limits,
	}
}

func (w *web) close() { w.transport.CloseIdleConnections() }

// attempt is how one try ended.
type attempt struct {
	failure *fault.Error // nil: the file is there
	again   bool         // another try may help
	after   time.Duration
}

// fetch fetches a URL, trying again where that may help.
func (w *web) fetch(i *Item, u *url.URL) *fault.Error {
	t := newTiming(i.ctx, w.timeout, w.limits.idle)
	defer t.stop()
	i.contents.clock = t
	for try := 0; ; try++ {
		a := w.try(i, t, *u)
		switch {
		case i.ctx.Err() != nil:
			return canceled()
		case a.failure == nil:
			return nil
		case !a.again || try >= w.retries:
			return a.failure
		}
		wait := max(w.limits.wait(try+1), a.after)
		if wait >= t.remaining() || !t.sleep(wait) { // it would end too late
			return a.failure
		}
		i.retries++
		i.contents.reset()
	}
}

// try requests a URL and follows its redirects.
func (w *web) try(i *Item, t *timing, u url.URL) attempt {
	at := &u
	for range maxRedirects + 1 {
		next, a := w.request(i, t, at)
		if next == nil {
			return a
		}
		if failure := checkRedirect(at, next); failure != nil {
			return attempt{failure: failure}
		}
		at = next
	}
	return attempt{failure: failed("more than %d redirects, the last from %s", maxRedirects, at.Host)}
}

// checkRedirect refuses a redirect that leads away from the web, or to an unprotected
// connection.
func checkRedirect(from, to *url.URL) *fault.Error {
	if failure := checkURL(to); failure != nil {
		return failed("redirect from %s: %w", from.Host, failure)
	}
	if from.Scheme == "https" && to.Scheme == "http" {
		return failed("redirect from %s: from https: to http:", from.Host)
	}
	return nil
}

// request requests one URL. It returns where the response redirects to, or how the try
// ended.
func (w *web) request(i *Item, t *timing, u *url.URL) (*url.URL, attempt) {
	leave := w.enter(i, t, u.Host)
	if leave == nil {
		return nil, broken(t.ctx, u, t.ctx.Err())
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	requestCtx, last := keepalive.Trace(ctx)
	request := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: headers(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(requestCtx)
	if user := u.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, broken(ctx, u, err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		last() // the file may follow an error
	}
	stop := t.watch(cancel)
	defer stop()
	body := &watched{response.Body, t}
	if next, a, redirects := redirect(u, response); redirects {
		drain(body)
		return next, a
	}
	if response.StatusCode != http.StatusOK {
		drain(body)
		return nil, refusal(u, response)
	}
	return nil, receive(ctx, i, u, response, body)
}

// enter waits until the host may get another request. That time does not count.
func (w *web) enter(i *Item, t *timing, host string) (leave func()) {
	t.pause()
	defer t.resume()
	return w.hosts.enter(t.ctx, i.urgent, host)
}

func headers() http.Header {
	return http.Header{"User-Agent": {"gpurun"}, "Accept": {"*/*"}, "Accept-Encoding": {"identity"}}
}

// redirect returns where a response redirects to.
func redirect(from *url.URL, response *http.Response) (to *url.URL, a attempt, redirects bool) {
	switch response.StatusCode {
	case 301, 302, 303, 307, 308:
	default:
		return nil, attempt{}, false
	}
	location := response.Header.Get("Location")
	if location == "" {
		return nil, refusal(from, response), true
	}
	to, err := from.Parse(location)
	if err != nil {
		return nil, attempt{failure: failed("%s redirects to an invalid URL", from.Host)}, true
	}
	return to, attempt{}, true
}

// refusal is the end of a try that the host has refused.
func refusal(u *url.URL, response *http.Response) attempt {
	code := response.StatusCode
	a := attempt{
		failure: failed("HTTP %d from %s", code, u.Host).WithDetail(http.StatusText(code)),
		again:   code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500,
		after:   keepalive.RetryAfter(response.Header, time.Now()),
	}
	if a.again || code == http.StatusUnauthorized || code == http.StatusForbidden {
		a.failure = a.failure.Signed(fault.Outage)
	}
	return a
}

// broken is the end of a try without a complete response. The message names no addresses
// and times, which may differ from run to run.
func broken(ctx context.Context, u *url.URL, err error) attempt {
	a := attempt{again: true}
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errPrivate):
		a = attempt{failure: failed("%s has no public address, and fetch-allow-private is off", u.Host).Set("fetch-allow-private")}
	case errors.Is(err, errTime), errors.Is(context.Cause(ctx), errTime), isTimeout(err):
		a.failure = failed("%s did not send the file in time", u.Host)
	case errors.As(err, &dns) && dns.IsNotFound:
		a = attempt{failure: failed("there is no host %s", u.Hostname())}
	case errors.As(err, &dns):
		a.failure = failed("the host %s cannot be resolved", u.Hostname())
	case errors.As(err, &certificate), errors.As(err, &record):
		a = attempt{failure: failed("the connection to %s is not secure", u.Host)}
	default:
		a.failure = failed("the connection to %s failed", u.Host)
	}
	a.failure = a.failure.WithDetail(err.Error()).Signed(fault.Outage)
	if u.RawQuery != "" && strings.Contains(a.failure.Detail, u.RawQuery) {
		a.failure.Detail = ""
	}
	return a
}

// isTimeout does not distinguish which time limit was reached: that differs from run to
// run. A name that cannot be resolved in time is not the host's fault.
func isTimeout(err error) bool {
	var network net.Error
	var dns *net.DNSError
	return errors.As(err, &network) && network.Timeout() && !errors.As(err, &dns)
}
