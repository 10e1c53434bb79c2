// Command probe is what the network tests run in a sandbox: one try to reach
// something, whose outcome it prints in one line.
package main

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const limit = 15 * time.Second

func main() {
	if len(os.Args) == 3 && os.Args[1] == "all" { // FILE: one probe a line, words between tabs
		data, err := os.ReadFile(os.Args[2])
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		for line := range strings.Lines(string(data)) {
			words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			once(words[0], words[1:])
		}
		return
	}
	if !once(os.Args[1], os.Args[2:]) {
		os.Exit(1)
	}
}

func once(kind string, args []string) bool {
	start := time.Now()
	out, err := run(kind, args)
	if err != nil {
		out = "error: " + err.Error()
	}
	_, werr := fmt.Printf("%s (%d ms)\n", strings.ReplaceAll(out, "\n", " "), time.Since(start).Milliseconds())
	return err == nil && werr == nil
}

func run(kind string, args []string) (string, error) {
	switch kind {
	case "tcp": // ADDR [TEXT]
		c, err := net.DialTimeout("tcp", args[0], limit)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		return talk(c, strings.Join(args[1:], " ")+"\n")
	case "udp": // ADDR
		c, err := net.DialTimeout("udp", args[0], limit)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		return talk(c, "hello\n")
	case "tls": // ADDR SNI [HOST]
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: limit}, "tcp", args[0], &tls.Config{ServerName: args[1], InsecureSkipVerify: true}) //nolint:gosec // the name is the point
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		return talk(c, "hello\n")
	case "raw": // ADDR BYTES, as Go writes them
		c, err := net.DialTimeout("tcp", args[0], limit)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		text := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(args[1])
		if _, err := io.WriteString(c, text); err != nil {
			return "", err
		}
		_ = c.SetDeadline(time.Now().Add(limit))
		all, err := io.ReadAll(io.LimitReader(c, 1<<16))
		if len(all) == 0 && err != nil {
			return "", err
		}
		return strings.ReplaceAll(string(all), "\r\n", "|"), nil
	case "dns": // SERVER NAME TYPE
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(args[1]), dns.StringToType[args[2]])
		q.SetEdns0(1232, false)
		network := "udp"
		if len(args) > 3 {
			network = args[3]
		}
		c := dns.Client{Net: network, Timeout: limit, TLSConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the way is the point
		m, _, err := c.Exchange(q, args[0])
		if err != nil {
			return "", err
		}
		out := dns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			out += " " + strings.Join(strings.Fields(rr.String())[3:], " ")
		}
		return out, nil
	case "get": // URL
		c := http.Client{Timeout: 2 * time.Minute}
		r, err := c.Get(args[0]) //nolint:noctx // the client has a limit
		if err != nil {
			return "", err
		}
		defer func() { _ = r.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		return string(body), err
	case "server": // prints the resolver
		f, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(f)) {
			if a, ok := strings.CutPrefix(line, "nameserver "); ok {
				return netip.MustParseAddr(strings.TrimSpace(a)).String(), nil
			}
		}
		return "", fmt.Errorf("no nameserver")
	case "ech": // ADDR OUTER INNER
		list, err := echConfigs(args[1])
		if err != nil {
			return "", err
		}
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: limit}, "tcp", args[0], &tls.Config{ServerName: args[2], MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list})
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		return talk(c, "hello\n")
	case "many": // ADDR N: so many connections at one time
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return "", err
		}
		return many(args[0], n)
	case "names": // SERVER SUFFIX N: asks for 0SUFFIX, 1SUFFIX, …
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		return names(args[0], args[1], n)
	case "hold": // ADDR: talks once a 100 ms until it ends
		c, err := net.DialTimeout("tcp", args[0], limit)
		if err != nil {
			return "", err
		}
		for {
			if _, err := talk(c, "hold\n"); err != nil {
				return "", err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return "", fmt.Errorf("there is no probe %q", kind)
}

// echConfigs has one made-up key under which the inner name goes.
func echConfigs(outer string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	body := []byte{1, 0, 0x20, 0, 32} // id; DHKEM(X25519, HKDF-SHA256)
	body = append(body, key.PublicKey().Bytes()...)
	body = append(body, 0, 4, 0, 1, 0, 1, 64) // HKDF-SHA256, AES-128-GCM; longest name
	body = append(append(body, byte(len(outer))), outer...)
	body = append(body, 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), nil
}

// many counts the connections that are open together and that answer then.
func many(to string, n int) (string, error) {
	conns := make([]net.Conn, n)
	var all sync.WaitGroup
	slots := make(chan struct{}, 20)
	for i := range conns {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for range 5 { // a full queue of the server's is no refusal
				c, err := net.DialTimeout("tcp", to, limit)
				if err == nil {
					conns[i] = c
					return
				}
			}
		})
	}
	all.Wait()
	answered := 0
	for _, c := range conns {
		if c == nil {
			continue
		}
		if _, err := talk(c, "hi\n"); err == nil {
			answered++
		}
		_ = c.Close()
	}
	return fmt.Sprintf("%d of %d", answered, n), nil
}

// names counts the names that are answered; who is told to slow down asks again.
func names(server, suffix string, n int) (string, error) {
	var answered atomic.Int64
	var all sync.WaitGroup
	next := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range next {
				q := new(dns.Msg)
				q.SetQuestion(dns.Fqdn(fmt.Sprintf("%d%s", i, suffix)), dns.TypeA)
				for range 100 {
					m, _, err := new(dns.Client).Exchange(q, server)
					if err == nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 {
						answered.Add(1)
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return fmt.Sprintf("%d of %d", answered.Load(), n), nil
}

// talk says something and reads one line.
func talk(c net.Conn, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}
