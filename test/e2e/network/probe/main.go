// Command probe is what the network tests run in a sandbox: one try to reach
// something, whose outcome it prints in one line.
package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const limit = 20 * time.Second

func main() {
	start := time.Now()
	out, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		out = "error: " + err.Error()
	}
	if _, werr := fmt.Printf("%s (%d ms)\n", out, time.Since(start).Milliseconds()); werr != nil || err != nil {
		os.Exit(1)
	}
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
