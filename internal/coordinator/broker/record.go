package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// File is the log of escalations in a Domain Root: one JSON object a line.
const File = "escalations.jsonl"

// What an Entry tells.
const (
	EventApproved = "approved" // by a desk, which is about to run it
	EventDenied   = "denied"
	EventTimeout  = "timeout"
	EventFailed   = "failed" // Lazaret failed, the client or the desk went away
	EventResult   = "result" // of what was approved
)

// Entry is a line of the log. Texts are kept as they came; who shows them makes
// them inert.
type Entry struct {
	Time          time.Time `json:"time"`
	Event         string    `json:"event"`
	Request       string    `json:"request_id"`
	Session       string    `json:"session_id"`
	Sandbox       string    `json:"sandbox"`
	Profile       string    `json:"profile"`
	Received      time.Time `json:"received"`
	Asked         string    `json:"asked"` // the command of the request
	CWD           string    `json:"cwd"`
	Justification string    `json:"justification"`

	Desk     string `json:"desk,omitempty"` // kind of the desk that decided
	DeskPID  int    `json:"desk_pid,omitempty"`
	Command  string `json:"command,omitempty"`  // what runs, where approved
	Auto     bool   `json:"auto,omitempty"`     // by rule or memory
	Remember bool   `json:"remember,omitempty"` // allowed for the session
	Reason   string `json:"reason,omitempty"`

	// Of a result: the exit code, and what was printed as length and SHA-256.
	ExitCode     int    `json:"exit_code,omitempty"`
	Failed       bool   `json:"failed,omitempty"` // nothing could be run
	StdoutBytes  int    `json:"stdout_bytes,omitempty"`
	StdoutSHA256 string `json:"stdout_sha256,omitempty"`
	StderrBytes  int    `json:"stderr_bytes,omitempty"`
	StderrSHA256 string `json:"stderr_sha256,omitempty"`
}

func (e *Entry) digest(stdout, stderr []byte) {
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	e.StdoutBytes, e.StdoutSHA256 = len(stdout), sum(stdout)
	e.StderrBytes, e.StderrSHA256 = len(stderr), sum(stderr)
}

type job struct {
	entry *Entry
	done  func(error)
}

// Log appends entries to a file, on a worker of its own, and calls back once they
// are on the disk. Several that come together share one flush.
type Log struct {
	jobs chan job
	over chan struct{}
	path string
}

// OpenLog starts the log in dir. The file is made with the first entry.
func OpenLog(dir string) *Log {
	l := &Log{jobs: make(chan job, 8*maxAllPending), over: make(chan struct{}), path: filepath.Join(dir, File)}
	go l.work()
	return l
}

// errFull is told where the disk is slower than the requests.
var errFull = errors.New("the disk does not keep up with the requests")

// Record is Options.Record.
func (l *Log) Record(e *Entry, done func(error)) {
	select {
	case l.jobs <- job{e, done}:
	default:
		go done(errFull)
	}
}

// Close ends the worker after what was recorded before. Record must not be called
// after it.
func (l *Log) Close() {
	close(l.jobs)
	<-l.over
}

func (l *Log) work() {
	defer close(l.over)
	var f *os.File
	defer func() {
		if f != nil {
			_ = f.Close() // flushed already
		}
	}()
	for j := range l.jobs {
		batch := []job{j}
		for more := true; more && len(batch) < maxAllPending; {
			select {
			case next, ok := <-l.jobs:
				if ok {
					batch = append(batch, next)
				}
				more = ok
			default:
				more = false
			}
		}
		var err error
		if f, err = l.reopen(f); err == nil {
			err = appendAll(f, batch)
		}
		for _, done := range batch {
			done.done(err)
		}
	}
}

// reopen opens the file, once more where its name means another file by now.
func (l *Log) reopen(f *os.File) (*os.File, error) {
	var now, open unix.Stat_t
	if f != nil && unix.Lstat(l.path, &now) == nil && unix.Fstat(int(f.Fd()), &open) == nil && now.Ino == open.Ino && now.Dev == open.Dev {
		return f, nil
	}
	if f != nil {
		_ = f.Close() // flushed already
	}
	fd, err := unix.Open(l.path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.path, err)
	}
	return os.NewFile(uintptr(fd), l.path), nil
}

// appendAll writes whole lines, or none of them.
func appendAll(f *os.File, batch []job) error {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for _, j := range batch {
		if err := enc.Encode(j.entry); err != nil {
			return fmt.Errorf("encode an entry: %w", err)
		}
	}
	before, err := f.Seek(0, 2)
	if err == nil {
		_, err = f.WriteString(text.String())
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		// Part of a line would spoil the next one.
		return errors.Join(fmt.Errorf("write %s: %w", f.Name(), err), f.Truncate(before))
	}
	return nil
}
