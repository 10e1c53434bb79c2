// Command record runs a command in a terminal and writes what it prints, as it comes, as
// an asciicast of version 2: https://docs.asciinema.org/manual/asciicast/v2/
//
//	record -out demo.cast -title "…" COMMAND…
//
// It ends with the command's exit status; of one that fails no recording is kept.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
)

const (
	columns = 110
	rows    = 34
	// idle is how long a pause of the recording is at most, in seconds, when it is played.
	idle = 1.5
)

func main() {
	out := flag.String("out", "", "write the recording to `FILE`")
	title := flag.String("title", "", "what the recording is called")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "record: want -out FILE and a command")
		os.Exit(2)
	}
	err := record(context.Background(), *out, *title, flag.Args(), os.Stdout, time.Now)
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() > 0 {
		fmt.Fprintln(os.Stderr, "record: no recording: the command failed:", err)
		os.Exit(status.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// header is the first line of an asciicast.
type header struct {
	Version   int               `json:"version"`
	Width     int               `json:"width"`
	Height    int               `json:"height"`
	Timestamp int64             `json:"timestamp"`
	Idle      float64           `json:"idle_time_limit"`
	Title     string            `json:"title,omitempty"`
	Env       map[string]string `json:"env"`
}

// record runs argv, copies what it prints to screen, and puts the recording at path when
// the command has ended well.
func record(ctx context.Context, path, title string, argv []string, screen io.Writer, now func() time.Time) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = os.Chmod(file.Name(), 0o644)
		}
		if err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // may be renamed already
		}
	}()
	const term = "xterm-256color"
	lines := json.NewEncoder(file)
	lines.SetEscapeHTML(false)
	began := now()
	if err := lines.Encode(header{2, columns, rows, began.Unix(), idle, title, map[string]string{"TERM": term, "SHELL": "/bin/bash"}}); err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TERM="+term)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: columns, Rows: rows})
	if err != nil {
		return err
	}
	defer func() { _ = terminal.Close() }() // read to its end
	var rest []byte
	buf := make([]byte, 32<<10)
	for {
		n, rerr := terminal.Read(buf)
		_, _ = screen.Write(buf[:n]) // a look at it only
		text, left := whole(append(rest, buf[:n]...))
		rest = append([]byte(nil), left...)
		if len(text) > 0 {
			if err := lines.Encode([]any{now().Sub(began).Seconds(), "o", string(text)}); err != nil {
				return errors.Join(err, cmd.Wait())
			}
		}
		if rerr != nil { // EIO: nobody has the other end any more
			break
		}
	}
	return cmd.Wait()
}

// whole parts b before a character that has not come to its end yet.
func whole(b []byte) (text, rest []byte) {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i], b[i:]
			}
			break
		}
	}
	return b, nil
}
