// Command testdesk is a desk for tests: it opens one at a control socket, prints
// each line that comes, and sends each line that it reads.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

func main() {
	if err := run(os.Args[1], wire.DeskRequest{Version: wire.Version, Kind: os.Args[2], SessionID: os.Args[3]}); err != nil {
		fmt.Fprintln(os.Stderr, "testdesk:", err)
		os.Exit(1)
	}
}

func run(socket string, req wire.DeskRequest) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", wire.PathDesk, len(body), body); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s (%w)", res.StatusCode, answer, err)
	}
	fmt.Println(`{"type":"open"}`)
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // its end ends us
		_ = conn.Close()
	}()
	_, err = io.Copy(os.Stdout, in)
	return err
}
