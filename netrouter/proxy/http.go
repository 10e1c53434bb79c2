package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

type sourceKey struct{}

// ServeHTTP answers on a listener that port 80 is led to, until it is closed. Each
// request is read and written anew by the standard library: what follows one on
// the connection is the next request, with a Host of its own to be looked at.
func (x *Proxy) ServeHTTP(ctx context.Context, ln net.Listener) error {
	transport := &http.Transport{
		Proxy: nil, DisableCompression: true, MaxIdleConns: 256, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
		DialContext: func(ctx context.Context, _, hostport string) (net.Conn, error) {
			name, _ := strings.CutSuffix(hostport, ":80")
			return x.dialHTTP(ctx, name)
		},
	}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", carried(r.In.Context()).name
			r.Out.Host = r.In.Host
			if _, told := r.In.Header["User-Agent"]; !told {
				r.Out.Header["User-Agent"] = nil // none is none
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			carried(r.Context()).err = err
			http.Error(w, "lazaret: "+err.Error(), http.StatusBadGateway)
		},
	}
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { x.serveHTTP(proxy, w, r) }),
		ReadHeaderTimeout: helloTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHello,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, sourceKey{}, addrOf(c.RemoteAddr()))
		},
	}
	defer func() { _ = srv.Close() }()
	if err := srv.Serve(ln); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// carriage is a request on its way.
type carriage struct {
	name string
	addr atomic.Pointer[netip.Addr] // the server's
	err  error                      // why it did not get there
}

type carriageKey struct{}

// carried is the carriage that serveHTTP has put into ctx.
func carried(ctx context.Context) *carriage {
	return ctx.Value(carriageKey{}).(*carriage) //nolint:forcetypeassert // nobody else makes the proxy's requests
}

// dialHTTP connects for the transport, which keeps connections by name.
func (x *Proxy) dialHTTP(ctx context.Context, name string) (net.Conn, error) {
	c, _, err := x.dial(ctx, name, 80)
	if err != nil {
		return nil, err
	}
	k := &kept{TCPConn: c, x: x}
	k.f = &flow{name: name, port: 80, end: func() { _ = k.Close() }}
	if !x.begin(k.f) {
		_ = c.Close()
		return nil, errNotAllowed
	}
	return k, nil
}

// kept is a connection that Cut can end.
type kept struct {
	*net.TCPConn
	x *Proxy
	f *flow
}

func (k *kept) Close() error {
	k.x.done(k.f)
	return k.TCPConn.Close()
}

// hostName is the name that a request is for, or why there is none: exactly that
// of its Host, and of its target where that tells one.
func hostName(r *http.Request) (string, error) {
	host := r.Host
	if r.URL.IsAbs() && !strings.EqualFold(r.URL.Host, host) || r.Method == http.MethodConnect {
		return "", errors.New("the request's target is of another host, or a tunnel")
	}
	host = strings.TrimSuffix(host, ":80")
	name, ok := plan.Name(host)
	if !ok {
		return "", errors.New("HTTP without a host name in Host")
	}
	return name, nil
}

func (x *Proxy) serveHTTP(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	source, _ := r.Context().Value(sourceKey{}).(netip.Addr)
	event := plan.Event{Kind: "http", Port: 80, Proto: "tcp", Source: source, Verdict: plan.Blocked}
	name, err := hostName(r)
	event.Name = name
	switch {
	case err != nil:
	case !x.allowed(name, 80):
		err = errNotAllowed
	case !x.enter(source):
		err = errTooMany
	default:
		defer x.leave(source)
	}
	if err != nil {
		event.Reason = err.Error()
		x.log(event)
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf("lazaret: %.260q: %v by the sandbox's profile", r.Host, err), http.StatusForbidden)
		return
	}
	body := &counted{ReadCloser: r.Body}
	out := &counting{ResponseWriter: w}
	r.Body = body
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	c := &carriage{name: name}
	ctx := httptrace.WithClientTrace(context.WithValue(r.Context(), carriageKey{}, c), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { a := addrOf(i.Conn.RemoteAddr()); c.addr.Store(&a) },
	})
	defer func() {
		event.Verdict, event.Up, event.Down = plan.Allowed, body.n.Load(), out.n.Load()
		if a := c.addr.Load(); a != nil {
			event.Addr = *a
		}
		if c.err != nil {
			event.Reason = c.err.Error()
		}
		x.log(event)
	}()
	proxy.ServeHTTP(out, r.WithContext(ctx))
}

type counted struct {
	io.ReadCloser
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type counting struct {
	http.ResponseWriter
	n atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
