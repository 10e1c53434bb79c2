package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/lazaret-dev/lazaret/internal/console/prompt"
)

const (
	followedLines = 40   // that are shown of a command which has failed
	followedLine  = 1000 // bytes that are kept of one line
)

// follower shows on one line of a terminal what a long command says, and since when
// it runs. Of a command that fails the end of all it said is shown. What is written
// comes from programs of an image: it is made inert.
type follower struct {
	w     io.Writer
	width func() int
	begun time.Time
	ended chan struct{}
	drawn sync.WaitGroup

	mu   sync.Mutex // above what Write and the clock share
	line []byte     // that is not at its end yet
	tail []string
}

// follow begins to show a command. A w that is no terminal gets all as it is.
func follow(w io.Writer) (out io.Writer, end func(failed bool)) {
	if columns(w) == 0 {
		return w, func(bool) {}
	}
	f := &follower{w: w, width: func() int { return columns(w) }, begun: time.Now(), ended: make(chan struct{})}
	f.drawn.Go(f.clock)
	return f, f.end
}

// clock shows that time goes by while the command says nothing.
func (f *follower) clock() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		f.mu.Lock()
		f.draw(time.Since(f.begun))
		f.mu.Unlock()
		select {
		case <-f.ended:
			return
		case <-tick.C:
		}
	}
}

// Write takes what the command says. It is drawn by the clock: a terminal need not
// show each of thousands of lines.
func (f *follower) Write(data []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line = append(f.line, data...)
	for {
		i := bytes.IndexAny(f.line, "\r\n")
		if i < 0 {
			break
		}
		f.keep(f.line[:i])
		f.line = f.line[i+1:]
	}
	if len(f.line) > followedLine {
		f.keep(f.line)
		f.line = nil
	}
	return len(data), nil
}

func (f *follower) keep(line []byte) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	f.tail = append(f.tail, prompt.Inert(string(line[:min(len(line), followedLine)])))
	if n := len(f.tail); n > followedLines {
		f.tail = f.tail[n-followedLines:]
	}
}

func (f *follower) draw(took time.Duration) {
	text := ""
	if n := len(f.tail); n > 0 {
		text = f.tail[n-1]
	}
	text = fmt.Sprintf("%7s  %s", took.Truncate(time.Second), text)
	_, _ = io.WriteString(f.w, "\r"+ansi.Truncate(text, max(1, f.width()-1), "…")+ansi.EraseLineRight) // progress only
}

func (f *follower) end(failed bool) {
	close(f.ended)
	f.drawn.Wait()
	f.keep(f.line)
	_, _ = io.WriteString(f.w, "\r"+ansi.EraseLineRight) // progress only
	if !failed {
		return
	}
	for _, line := range f.tail {
		_, _ = fmt.Fprintln(f.w, line) // the error says what is above
	}
}
