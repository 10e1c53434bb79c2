package terminal

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const patience = time.Minute

// user is a person at a terminal that shows what a relay does.
type user struct {
	t       *testing.T
	master  *os.File
	tty     *os.File
	prompts chan *Prompt
	ended   chan struct{}
	err     error
	cmd     *exec.Cmd
	stop    context.CancelFunc

	mu  sync.Mutex
	emu *vt.Emulator
}

// sit starts a shell script as the agent.
func sit(t *testing.T, script string) *user {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, winsize(80, 24)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	u := &user{
		t: t, master: master, tty: tty, prompts: make(chan *Prompt), ended: make(chan struct{}), stop: stop,
		emu: vt.NewEmulator(80, 24), cmd: exec.CommandContext(ctx, "/bin/sh", "-c", script),
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			u.mu.Lock()
			_, _ = u.emu.Write(buf[:n])
			u.mu.Unlock()
		}
	}()
	go func() { // what the terminal answers is typed
		buf := make([]byte, 256)
		for {
			n, err := u.emu.Read(buf)
			if err != nil {
				return
			}
			if _, err := master.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(u.ended)
		u.err = Run(ctx, Options{Terminal: tty, Cmd: u.cmd, Prompts: u.prompts})
	}()
	t.Cleanup(func() {
		stop()
		<-u.ended
		_ = u.emu.Close()
		_ = tty.Close()
		_ = master.Close()
	})
	return u
}

func (u *user) screen() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return describe(u.emu)
}

func (u *user) sees(text string) {
	u.t.Helper()
	u.eventually(text, func() bool { return strings.Contains(u.screen(), text) })
}

func (u *user) eventually(what string, ok func() bool) {
	u.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.t.Fatalf("never: %s\n%s", what, u.screen())
		}
	}
}

func (u *user) types(text string) {
	u.t.Helper()
	if _, err := u.master.WriteString(text); err != nil {
		u.t.Fatal(err)
	}
}

// asks puts a request up and waits until it shows.
func (u *user) asks(id string) (answer <-chan prompt.Answer, gone chan struct{}) {
	u.t.Helper()
	answers := make(chan prompt.Answer, 1)
	gone = make(chan struct{})
	view := &policy.View{Command: "aws " + id, Argv: []string{"aws", id}, Program: "/usr/bin/aws", Dir: "/home/dev"}
	ask := &wire.Ask{ID: id, Domain: domain.Anchor{Profile: "claude"}, Session: "s", Command: view.Command, Deadline: time.Now().Add(time.Minute)}
	u.prompts <- &Prompt{Ask: ask, View: view, Gone: gone, Inspect: func(string) *policy.View { return view }, Answer: func(a prompt.Answer) { answers <- a }}
	u.sees(`"` + id + `"`)
	return answers, gone
}

func (u *user) waits(answers <-chan prompt.Answer) prompt.Answer {
	u.t.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(patience):
		u.t.Fatalf("no answer\n%s", u.screen())
	}
	return prompt.Answer{}
}

func (u *user) exits(code int) {
	u.t.Helper()
	select {
	case <-u.ended:
	case <-time.After(patience):
		u.t.Fatalf("it does not end\n%s", u.screen())
	}
	if got := u.cmd.ProcessState.ExitCode(); got != code {
		u.t.Errorf("exit %d, want %d: %v", got, code, u.err)
	}
}

// fresh waits until a key counts.
func fresh() { time.Sleep(prompt.Quiet + 100*time.Millisecond) }

func TestPromptInBetween(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{
		"main":      `printf 'one\n\033[31mtwo\033[m\nagent> '`,
		"alternate": `printf '\033[?1049h\033[H\033[44mfull screen\033[m\033[7;3H\033[?2004h\033[?1000hagent> '`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := sit(t, begin+`; read line; printf 'read <%s>' "$line"; read line; exit 7`)
			u.sees("agent>")
			before := u.screen()
			answers, _ := u.asks("first")
			u.types("a") // for the agent, as it was being typed
			u.types("nd")
			u.sees("key ignored")
			select {
			case a := <-answers:
				t.Fatalf("answered by keys that were typed for the agent: %+v", a)
			default:
			}
			fresh()
			u.types("a")
			if a := u.waits(answers); a.Verb != prompt.Approve || a.View.Command != "aws first" {
				t.Errorf("answer %+v", a)
			}
			u.eventually("the screen is as before", func() bool { return u.screen() == before })
			u.types("hello\r")
			u.sees("read <hello>")
			u.types("\r")
			u.exits(7)
		})
	}
}

// Many questions to the terminal at once, as editors ask them at their start, hold
// up neither the agent's output nor the person.
func TestManyQuestionsAtOnce(t *testing.T) {
	t.Parallel()
	u := sit(t, `q='\033[c\033[6n\033[5n\033[>c'; q=$q$q$q$q; q=$q$q$q$q; stty raw -echo; printf "$q$q$q$q$q$q"; printf '\033[2Jagent>'; exec sleep 60`)
	u.sees("agent>")
	answers, _ := u.asks("after them")
	fresh()
	u.types("d")
	if a := u.waits(answers); a.Verb != prompt.Deny {
		t.Errorf("answer %+v", a)
	}
}

// The agent's output waits while a prompt shows, and a request that is gone takes
// the prompt away.
func TestPromptGoes(t *testing.T) {
	t.Parallel()
	u := sit(t, `printf 'agent> '; read line; i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done; printf 'end>'; read line`)
	u.sees("agent>")
	u.types("go")
	u.sees("agent> go")
	// The return key comes with the prompt up, and is not the agent's.
	answers, gone := u.asks("gone")
	u.types("\rx")
	u.sees("key ignored")
	close(gone)
	u.sees("agent> go")
	select {
	case a := <-answers:
		t.Errorf("answered: %+v", a)
	default:
	}
	u.types("\r")
	u.sees("end>")
	u.types("\r")
	u.exits(0)
}

// What the agent prints and asks while a prompt shows.
func TestOutputWaits(t *testing.T) {
	t.Parallel()
	u := sit(t, `stty raw -echo; printf 'agent> '; dd bs=1 count=1 2>/dev/null >/dev/null; printf going; sleep 1; printf '\033[6nbehind'; dd bs=1 count=7 2>/dev/null | od -An -c; printf 'done'; dd bs=1 count=1 2>/dev/null >/dev/null`)
	u.sees("agent>")
	u.types("x")
	u.sees("going")
	answers, _ := u.asks("first")
	time.Sleep(1500 * time.Millisecond)
	if s := u.screen(); strings.Contains(s, "behind") {
		t.Errorf("the agent's output shows in the prompt:\n%s", s)
	}
	fresh()
	u.types("d")
	if a := u.waits(answers); a.Verb != prompt.Deny {
		t.Errorf("answer %+v", a)
	}
	u.sees("behind")
	u.sees("done") // its question was answered
	u.sees("R")    // CSI row ; column R
	u.types("x")
	u.exits(0)
}

func TestSignalsAndSize(t *testing.T) {
	t.Parallel()
	t.Run("size", func(t *testing.T) {
		t.Parallel()
		u := sit(t, `trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done`)
		u.sees("ready")
		u.mu.Lock()
		u.emu.Resize(100, 30)
		u.mu.Unlock()
		if err := pty.Setsize(u.master, winsize(100, 30)); err != nil {
			t.Fatal(err)
		}
		// The terminal is not this process's controlling one: the kernel tells others.
		if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
			t.Fatal(err)
		}
		u.sees("30 100")
		u.stop()
		<-u.ended
		if !errors.Is(u.err, context.Canceled) {
			t.Errorf("ended with %v", u.err)
		}
	})
	t.Run("the terminal is left as it was", func(t *testing.T) {
		t.Parallel()
		u := sit(t, `printf '\033[?1049h\033[?25l\033[?1000h\033[3;5rfull'; exit 3`)
		before, err := unix.IoctlGetTermios(int(u.tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		u.exits(3)
		after, err := unix.IoctlGetTermios(int(u.tty.Fd()), unix.TCGETS)
		if err != nil || before.Lflag&unix.ICANON != 0 && *before != *after {
			t.Errorf("settings %+v, were %+v: %v", after, before, err)
		}
		if after.Lflag&(unix.ICANON|unix.ECHO) != unix.ICANON|unix.ECHO {
			t.Errorf("the terminal is raw")
		}
		u.eventually("main screen and cursor", func() bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return !u.emu.IsAltScreen() && !u.emu.CursorHidden()
		})
	})
}
