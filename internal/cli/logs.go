package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// logPause is between two looks at a log that is followed.
const logPause = 200 * time.Millisecond

func logsCommand() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "show what a domain's coordinator, guard and network have written",
		ArgsUsage: "[PATH|HASH]",
		Description: "Also of a domain that is no longer in use. What the agent wrote is not in it: that is podman\n" +
			"logs'. [general] log_level sets how much is written.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what is written from now on, until interrupted", DisableDefaultText: true},
			&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Usage: "begin with the last `N` lines; 0 for all", Value: 0, DefaultText: "all"},
			&cli.BoolFlag{Name: "json", Usage: "print the lines as they were written, one JSON object each", DisableDefaultText: true},
		},
		Action: runLogs,
	}
}

func runLogs(c *cli.Context) error {
	if c.Int("lines") < 0 {
		return usageError("--lines must be 0 or more")
	}
	r, err := namedDomain(c)
	if err != nil {
		return err
	}
	path := wire.LogPath(r.anchor.Root)
	l := &logPrinter{w: c.App.Writer, raw: c.Bool("json")}
	found, err := l.past(path, c.Int("lines"))
	if err != nil {
		return err
	}
	switch {
	case c.Bool("follow"):
		return l.follow(c.Context, path)
	case !found:
		return nothing(c, "domain %s (profile %s) of %s has written no log yet", r.anchor.Hash, r.anchor.Profile, workspaceText(r.anchor))
	}
	return nil
}

// logPrinter prints lines of a log.
type logPrinter struct {
	w       io.Writer
	raw     bool
	current *os.File // the newest file, read up to its present end
	part    []byte   // of a line that is not whole yet
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// past prints the last n lines, all for 0, of a log and what it was before it grew
// too large. It reports whether there was a log.
func (l *logPrinter) past(path string, n int) (found bool, err error) {
	dir, base := filepath.Split(path)
	ext := filepath.Ext(base)
	names, err := fs.Glob(os.DirFS(dir), strings.TrimSuffix(base, ext)+"-*"+ext) // named by time, and in that order
	if err != nil {
		return false, err
	}
	last := []string{}
	for _, name := range append(names, base) {
		name = filepath.Join(dir, name)
		f, err := openLog(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("read the log: %w", err)
		}
		found = true
		each := l.line
		if n > 0 {
			each = func(line string) error {
				last = append(last, line)
				last = last[max(0, len(last)-n):]
				return nil
			}
		}
		if err := l.read(f, each); err != nil {
			return found, errors.Join(err, f.Close())
		}
		if name == path {
			l.current = f
		} else if err := f.Close(); err != nil {
			return found, err
		}
	}
	for _, line := range last {
		if err := l.line(line); err != nil {
			return found, err
		}
	}
	return found, nil
}

// read passes on the whole lines from where f stands.
func (l *logPrinter) read(f *os.File, each func(string) error) error {
	r := bufio.NewReader(f)
	for {
		data, err := r.ReadBytes('\n')
		l.part = append(l.part, data...)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read the log: %w", err)
		}
		line := string(bytes.TrimSuffix(l.part, []byte("\n")))
		l.part = nil
		if err := each(line); err != nil {
			return err
		}
	}
}

// follow prints what is written to a log until ctx ends. A log that was renamed and
// begun anew is followed in the new file.
func (l *logPrinter) follow(ctx context.Context, path string) error {
	tick := time.NewTicker(logPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l.current != nil {
			if err := l.read(l.current, l.line); err != nil {
				return err
			}
		}
		now, err := os.Lstat(path)
		if err != nil {
			continue // it is being renamed, or there is none yet
		}
		if l.current != nil {
			if was, err := l.current.Stat(); err == nil && os.SameFile(was, now) {
				continue
			}
			// What came between the reading and the renaming.
			if err := errors.Join(l.read(l.current, l.line), l.current.Close()); err != nil {
				return err
			}
			l.current = nil
		}
		if l.current, err = openLog(path); err != nil {
			l.current = nil
		}
	}
}

// line prints one line: as it is, or for people.
func (l *logPrinter) line(line string) error {
	if !l.raw {
		line = logText(line)
	} else {
		line = strings.TrimSuffix(inertJSON(line), "\n")
	}
	_, err := fmt.Fprintln(l.w, line)
	return err
}

// logText is a line of the log for people: time, level, message, and the rest by
// name. What is no such line is shown as it is, inert.
func logText(line string) string {
	var all map[string]any
	if json.Unmarshal([]byte(line), &all) != nil {
		return config.Printable(line)
	}
	text := func(key string) string {
		s, _ := all[key].(string)
		delete(all, key)
		return s
	}
	at := text("time")
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.Local().Format("2006-01-02 15:04:05.000")
	}
	out := fmt.Sprintf("%s %-5s %s", at, text("level"), text("msg"))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v, is := all[k].(string)
		if !is {
			data, err := json.Marshal(all[k])
			if err != nil {
				continue
			}
			v = string(data)
		} else if v == "" || strings.ContainsAny(v, " \"=") {
			v = fmt.Sprintf("%q", v)
		}
		out += "  " + k + "=" + v
	}
	return config.Printable(out)
}
