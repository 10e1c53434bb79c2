// Command asker is what the benchmark of Host Escalation starts: in a sandbox it
// asks, on the host it is a desk that costs as little as one can.
//
//	asker turns N          asks N times, one after the other; a line for each
//	asker load D WORKERS   asks for the time D, so many at once; one line
//	asker desk SOCKET      approves everything and says at once that it ran
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	client   = "/run/lazaret/escalate"
	deskTime = 10 * time.Second // for each line of a desk's
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "asker:", err)
		os.Exit(1)
	}
}

func run(what string, args []string) error {
	switch what {
	case "turns":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return turns(n)
	case "load":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		workers, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return load(d, workers)
	case "desk":
		return desk(args[0])
	}
	return errors.New("no such part")
}

// Turn is what one request took, in milliseconds.
type Turn struct {
	Whole     float64 // the client's program, from its start to its exit
	Start     float64 // the client's program when it does nothing
	Handshake float64 // certificate read, connected, TLS
	Policy    float64 // sent, judged, put before a desk, approved, recorded
	Run       float64 // run at the desk, its end told
}

func ms(since time.Time) float64 { return float64(time.Since(since)) / float64(time.Millisecond) }

func turns(n int) error {
	out := json.NewEncoder(os.Stdout)
	for range n {
		var t Turn
		begin := time.Now()
		if err := exec.CommandContext(context.Background(), client, "--version").Run(); err != nil {
			return err
		}
		t.Start = ms(begin)
		begin = time.Now()
		if text, err := exec.CommandContext(context.Background(), client, "--", "true").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		t.Whole = ms(begin)
		if err := t.inParts(); err != nil {
			return err
		}
		if err := out.Encode(t); err != nil {
			return err
		}
	}
	return nil
}

// inParts does what the client does, with a look at the clock in between.
func (t *Turn) inParts() error {
	body, err := request()
	if err != nil {
		return err
	}
	begin := time.Now()
	conn, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.NetConn().Close() }()
	t.Handshake = ms(begin)
	begin = time.Now()
	if _, err := conn.Write(body); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, nil)
		switch {
		case err != nil:
			return err
		case res.StatusCode == http.StatusProcessing && res.Header.Get(escalate.NewsHeader) == escalate.NewsRunning:
			t.Policy = ms(begin)
			begin = time.Now()
		case res.StatusCode == http.StatusOK && t.Policy > 0:
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				return err
			}
			t.Run = ms(begin)
			return nil
		case res.StatusCode != http.StatusProcessing:
			return fmt.Errorf("answered with %s", res.Status)
		}
	}
}

func request() ([]byte, error) {
	s, err := escalate.FindSession(os.Getenv, "/proc")
	if err != nil {
		return nil, err
	}
	c := escalate.Client{Socket: escalate.Socket, Certs: escalate.Certs}
	req, err := c.NewRequest(s, "true", "")
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", escalate.RequestPath, len(body), body), nil
}

func dial() (*tls.Conn, error) {
	ca, err := os.ReadFile(filepath.Join(escalate.Certs, "ca.pem"))
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(escalate.Certs, "client.pem"), filepath.Join(escalate.Certs, "client.key"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	raw, err := net.Dial("unix", escalate.Socket)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: escalate.ServerName, Certificates: []tls.Certificate{pair}, CurvePreferences: []tls.CurveID{tls.X25519}})
	if err := conn.Handshake(); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// Load is what came of asking for a time.
type Load struct {
	Seconds  float64
	Answered int
	Failed   map[string]int
}

func load(d time.Duration, workers int) error {
	s, err := escalate.FindSession(os.Getenv, "/proc")
	if err != nil {
		return err
	}
	c := escalate.Client{Socket: escalate.Socket, Certs: escalate.Certs}
	total := Load{Failed: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for range workers {
		all.Go(func() {
			for time.Since(begin) < d {
				req, err := c.NewRequest(s, "true", "")
				if err == nil {
					_, err = c.Ask(context.Background(), req, func(string) {})
				}
				mu.Lock()
				if err == nil {
					total.Answered++
				} else {
					total.Failed[err.Error()]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	total.Seconds = time.Since(begin).Seconds()
	return json.NewEncoder(os.Stdout).Encode(total)
}

func desk(socket string) error {
	conn, err := wire.Dial(socket, deskTime)
	if err != nil {
		return err
	}
	req := wire.DeskRequest{Version: wire.Version, Kind: wire.DeskHeadless}
	if err := conn.Call(wire.PathDesk, req, &wire.Empty{}, deskTime); err != nil {
		return err
	}
	fmt.Println("open")
	in := bufio.NewScanner(conn)
	in.Buffer(nil, wire.MaxLine)
	for in.Scan() {
		var e wire.DeskEvent
		if err := json.NewDecoder(bytes.NewReader(in.Bytes())).Decode(&e); err != nil {
			return err
		}
		reply := wire.DeskReply{Type: wire.ReplyResult, ID: e.ID}
		switch e.Type {
		case wire.EventAsk:
			reply = wire.DeskReply{Type: wire.ReplyApprove, ID: e.Ask.ID, Command: e.Ask.Command, Auto: true}
		case wire.EventGone:
			continue
		}
		line, err := json.Marshal(reply)
		if err == nil {
			err = conn.Write(append(line, '\n'), deskTime)
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}
