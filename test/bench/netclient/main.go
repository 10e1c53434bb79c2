// Command netclient is the benchmark's program in a sandbox. It prints how long
// what it was asked for took, in nanoseconds: get and put URL, each once;
// requests URL N and connects ADDR N, one after the other on new connections, for
// one; lookups SUFFIX FIRST N, of names n<FIRST>.<SUFFIX> on, for one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// upload is what put sends, in bytes.
const upload = 64 << 20

func main() {
	took, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(took.Nanoseconds())
}

func run(args []string) (time.Duration, error) {
	if len(args) < 2 {
		return 0, errors.New("needs a kind and where to")
	}
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n } // 0 measures nothing, which fails
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx := context.Background()
	send := func(method string, body io.Reader) error {
		req, err := http.NewRequestWithContext(ctx, method, args[1], body)
		if err != nil {
			return err
		}
		r, err := client.Do(req) //nolint:gosec // the benchmark's own
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r.Body)
		return errors.Join(err, r.Body.Close())
	}
	n, each := 1, func(int) error { return send(http.MethodGet, nil) }
	switch args[0] {
	case "get":
	case "put":
		each = func(int) error { return send(http.MethodPut, io.LimitReader(zeros{}, upload)) }
	case "requests":
		n = number(2)
	case "connects":
		n = number(2)
		each = func(int) error {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", args[1])
			if err != nil {
				return err
			}
			return c.Close()
		}
	case "lookups":
		n = number(3)
		each = func(i int) error {
			_, err := new(net.Resolver).LookupIP(ctx, "ip4", fmt.Sprintf("n%d.%s.", number(2)+i, args[1]))
			return err
		}
	default:
		return 0, fmt.Errorf("%q is not a kind", args[0])
	}
	begin := time.Now()
	for i := range n {
		if err := each(i); err != nil {
			return 0, err
		}
	}
	if n < 1 {
		return 0, errors.New("nothing to measure")
	}
	return time.Since(begin) / time.Duration(n), nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
