package console

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

var update = flag.Bool("update", false, "write the golden screens")

var began = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// person is a model before somebody, with a clock that he turns.
type person struct {
	t *testing.T
	*model
	clock    time.Time
	did      []string
	fail     error
	quit     bool
	inspects int
}

func newPerson(t *testing.T, width, height int) *person {
	p := &person{t: t, clock: began}
	p.model = &model{
		desks: p, now: func() time.Time { return p.clock }, open: map[string]bool{}, problems: map[string]string{}, guards: map[string]*Guard{}, nets: map[string]*Net{},
		save: func(profile, entry string) (string, error) {
			p.did = append(p.did, "save "+profile+" "+entry)
			return "/home/u/.config/lazaret/config.toml", p.fail
		},
		stop: func(sandbox string) error { p.did = append(p.did, "stop "+sandbox); return p.fail },
	}
	p.tell(tea.WindowSizeMsg{Width: width, Height: height})
	return p
}

func (p *person) Approve(k Key, v *policy.View, remember bool) error {
	p.did = append(p.did, fmt.Sprintf("approve %s %s %v", k.ID, v.Command, remember))
	return p.fail
}

func (p *person) Deny(k Key, reason string) error {
	p.did = append(p.did, strings.TrimSpace("deny "+k.ID+" "+reason))
	return p.fail
}

func (p *person) Allow(socket, entry string) error {
	p.did = append(p.did, "allow "+socket+" "+entry)
	return p.fail
}

func (p *person) View(_ *wire.Ask, command string) *policy.View {
	p.inspects++
	return view(command)
}

func view(command string) *policy.View {
	v := &policy.View{Command: command, Argv: strings.Fields(command), Program: "/usr/bin/" + strings.Fields(command)[0], Dir: "/home/u/project", Why: "no automatic approval covers it"}
	if strings.ContainsAny(command, ";|") {
		v.Shell, v.Argv, v.Program = true, []string{"/bin/sh", "-c", command}, "/bin/dash"
	}
	return v
}

// tell passes a message, and the messages of what it has done.
func (p *person) tell(msg tea.Msg) {
	_, cmd := p.Update(msg)
	p.do(cmd)
}

func (p *person) do(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch out := cmd().(type) {
	case tea.QuitMsg:
		p.quit = true
	case doneMsg:
		p.tell(out)
	}
}

func (p *person) keys(names ...string) {
	for _, n := range names {
		var k tea.KeyPressMsg
		switch n {
		case "enter":
			k.Code = tea.KeyEnter
		case "esc":
			k.Code = tea.KeyEscape
		case "up":
			k.Code = tea.KeyUp
		case "down":
			k.Code = tea.KeyDown
		case "space":
			k.Code, k.Text = tea.KeySpace, " "
		case "backspace":
			k.Code = tea.KeyBackspace
		case "ctrl+c":
			k.Code, k.Mod = 'c', tea.ModCtrl
		case "ctrl+u":
			k.Code, k.Mod = 'u', tea.ModCtrl
		default:
			k.Code, k.Text = []rune(n)[0], n
		}
		p.tell(k)
	}
}

// wait lets time pass, with the ticks in it.
func (p *person) wait(d time.Duration) {
	for end := p.clock.Add(d); p.clock.Before(end); {
		p.clock = p.clock.Add(100 * time.Millisecond)
		p.do(p.answer()) // as a tick has it done
	}
}

// press is a key of somebody who takes his time.
func (p *person) press(names ...string) {
	for _, n := range names {
		p.wait(time.Second)
		p.keys(n)
		p.wait(time.Second)
	}
}

func (p *person) event(socket string, e *desk.Event) {
	e.ID = e.Ask.ID
	if e.View == nil {
		e.View = view(e.Ask.Command)
	}
	p.tell(updateMsg{Event: e, Key: Key{socket, e.ID}, Socket: socket, Open: true})
}

func (p *person) screen() string {
	var b strings.Builder
	for _, l := range p.frame() {
		b.WriteString(strings.TrimRight(l.Text(), " ") + "\n")
	}
	return b.String()
}

func ask(id, profile, command string) *wire.Ask {
	return &wire.Ask{
		ID: id, Command: command, CWD: "/workspace", Justification: "need the account id", Sandbox: strings.Repeat("ab", 32),
		Session: "5e551011-0000-4000-8000-000000000001", Kind: "exec", Received: began, Deadline: began.Add(2 * time.Minute), Waiting: 1,
		Domain: domain.Anchor{Profile: profile, Workspace: "/home/u/project", Hash: "0123456789ab"},
	}
}

func (p *person) golden(name string) {
	p.t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got := p.screen()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		p.t.Errorf("%s:\n%s", name, diff)
	}
	p.fits()
}

func (p *person) fits() {
	p.t.Helper()
	lines := p.frame()
	if len(lines) > p.height {
		p.t.Errorf("%d lines on %d rows", len(lines), p.height)
	}
	for _, l := range lines {
		if n := prompt.Cells(l.Text()); n > p.width {
			p.t.Errorf("%d cells in %d columns: %q", n, p.width, l.Text())
		}
		for _, r := range l.Text() {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				p.t.Errorf("control character %q in %q", r, l.Text())
			}
		}
	}
}

// busy is a screen with one request of each kind.
func (p *person) busy() {
	p.tell(updateMsg{Socket: "a", Open: true})
	p.tell(updateMsg{Socket: "b", Open: true})
	p.event("a", &desk.Event{Type: desk.Started, Ask: ask("1", "dev", "date"), Auto: true})
	p.clock = p.clock.Add(3 * time.Second)
	p.event("a", &desk.Event{Type: desk.Finished, Ask: ask("1", "dev", "date"), Auto: true, Result: &hostrun.Result{Stdout: []byte("Mon\x1b[2J\n")}})
	p.event("b", &desk.Event{Type: desk.Asked, Ask: ask("2", "claude", "gh pr create --title 'a \x1b[2K\rb \u202e' "+strings.Repeat("x", 100))})
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("3", "dev", "aws sts get-caller-identity")})
	p.event("a", &desk.Event{Type: desk.Started, Ask: ask("4", "a-profile-of-many-letters", "sleep 10; date")})
	p.clock = p.clock.Add(65 * time.Second)
	p.event("b", &desk.Event{Type: desk.Gone, Ask: ask("5", "claude", "日本語 ls"), Why: "the client went away"})
}

func TestScreens(t *testing.T) {
	for _, width := range []int{80, 40} {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, width) }
		p := newPerson(t, width, 24)
		p.golden(name("nothing"))
		p.busy()
		p.golden(name("list"))
		p.keys("/", "d", "e", "v")
		p.golden(name("filter"))
		p.keys("enter", "down")
		p.golden(name("filtered"))
		p.keys("esc", "g", "enter")
		p.golden(name("prompt"))
		p.keys("esc")
		p.tell(updateMsg{Socket: "c", Problem: "coordinator of another \x1b version"})
		p.keys("G", "enter")
		p.golden(name("details"))
		p.keys("esc")
		p.golden(name("problem"))
		p.tell(updateMsg{Socket: "a", Open: true, Guard: &Guard{Cut: true, Of: domain.Anchor{Profile: "dev", Workspace: "/home/u/pro\x1b[2Jject"}}})
		p.golden(name("cut"))
		p.tell(updateMsg{Socket: "b", Open: true, Guard: &Guard{Dead: true, Cut: true, Of: domain.Anchor{Profile: "dev", Workspace: "/home/u/other"}}})
		p.golden(name("guards"))
		p.tell(updateMsg{Socket: "a", Open: true, Guard: &Guard{Of: domain.Anchor{Profile: "dev", Workspace: "/home/u/project"}}})
		p.golden(name("dead"))
		p.fits()
		p.tell(updateMsg{Socket: "b"})
		if len(p.guards) > 0 {
			t.Error("the guard of a domain that has ended is told still")
		}
	}
}

func TestSmallScreens(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {10, 3}, {1, 1}, {200, 2}, {40, 100}} {
		p := newPerson(t, size[0], size[1])
		p.busy()
		_ = p.frame() // no panic; the least that is legible is eight columns
		if size[0] >= 20 {
			p.fits()
		}
		p.keys("G", "enter", "j", "G")
		_ = p.frame()
	}
}

func TestColours(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.busy()
	plain := p.model.View().Content
	if strings.Contains(plain, "\x1b[1;31m") || strings.Contains(plain, "\x1b[2m") {
		t.Error("colours though there are to be none")
	}
	p.color = true
	for _, s := range []string{p.model.View().Content, plain} {
		for rest := s; strings.Contains(rest, "\x1b"); {
			_, after, _ := strings.Cut(rest, "\x1b")
			sgr, text, ok := strings.Cut(after, "m")
			if !ok || strings.Trim(sgr, "[0123456789;") != "" {
				t.Fatalf("an escape sequence that is no SGR: %q", after[:min(20, len(after))])
			}
			// Set colours must be legible on light and on dark: red alone is.
			if strings.ContainsAny(strings.ReplaceAll(sgr, "31", ""), "345689") {
				t.Errorf("a colour: %q", sgr)
			}
			rest = text
		}
	}
}

func TestApprove(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.press("enter", "a")
	if got := strings.Join(p.did, ","); got != "approve 1 aws sts false" {
		t.Errorf("did %q", got)
	}
	if !strings.Contains(p.screen(), "... ") {
		t.Errorf("not shown as answered:\n%s", p.screen())
	}
	p.event("a", &desk.Event{Type: desk.Started, Ask: ask("1", "dev", "aws sts")})
	p.event("a", &desk.Event{Type: desk.Finished, Ask: ask("1", "dev", "aws sts"), Result: &hostrun.Result{ExitCode: 7}})
	if !strings.Contains(p.screen(), "exit 7") {
		t.Errorf("no outcome:\n%s", p.screen())
	}
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys []string
		did  string
	}{
		{"deny", []string{"d"}, "deny 1"},
		{"deny with a reason", []string{"r", "n", "o", "enter"}, "deny 1 no"},
		{"for the session", []string{"s"}, "approve 1 aws sts true"},
		{"edit", []string{"e", "ctrl+u", "l", "s", "enter", "a"}, "approve 1 ls false"},
		{"abort", []string{"q"}, "deny 1 the session has been ended,stop " + strings.Repeat("ab", 32)},
		{"leave it", []string{"esc", "esc", "a", "d"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPerson(t, 80, 24)
			p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
			p.press("enter")
			p.press(tt.keys...)
			if got := strings.Join(p.did, ","); got != tt.did || p.quit {
				t.Errorf("did %q, want %q; quit %v", got, tt.did, p.quit)
			}
		})
	}
}

// Keys that were typed before a request could be read answer nothing.
func TestEarlyKeys(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.keys("a", "d", "y", "s") // on the list they are nothing
	p.keys("enter", "a", "a", "d", "s")
	p.wait(5 * time.Second)
	if len(p.did) > 0 {
		t.Fatalf("did %q", p.did)
	}
	p.wait(time.Second)
	p.tell(tea.PasteMsg{Content: "a"})
	p.keys("a")
	p.wait(5 * time.Second)
	if len(p.did) > 0 {
		t.Fatalf("a paste did %q", p.did)
	}
	p.press("d")
	if got := strings.Join(p.did, ","); got != "deny 1" {
		t.Errorf("did %q", got)
	}
}

// A prompt never turns into another request's.
func TestTheShownRequestGoes(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.press("enter")
	p.keys("a")
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("2", "dev", "rm x")})
	p.event("a", &desk.Event{Type: desk.Gone, Ask: ask("1", "dev", "aws sts"), Why: "left"})
	if !strings.Contains(p.screen(), "the request that was shown: gone") {
		t.Errorf("not told:\n%s", p.screen())
	}
	p.wait(5 * time.Second)
	p.press("a")
	if len(p.did) > 0 || p.prompt != nil {
		t.Errorf("did %q", p.did)
	}
	// The same id in another domain is another request.
	p = newPerson(t, 80, 24)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.event("b", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "rm x")})
	p.press("enter")
	p.tell(updateMsg{Socket: "b"})
	p.press("a")
	if got := strings.Join(p.did, ","); got != "approve 1 aws sts false" {
		t.Errorf("did %q", got)
	}
}

// An open prompt counts what waits of its session, as it comes and goes.
func TestCounts(t *testing.T) {
	p := newPerson(t, 80, 30)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.press("enter")
	title := func(want string) {
		t.Helper()
		if got, _, _ := strings.Cut(p.screen(), "\n"); strings.TrimSpace(got) != strings.TrimSpace("Lazaret: may this run on the host?  "+want) {
			t.Errorf("title %q, want %q", got, want)
		}
	}
	title("")
	for _, id := range []string{"2", "3"} {
		p.event("a", &desk.Event{Type: desk.Asked, Ask: ask(id, "dev", "date")})
	}
	other := ask("5", "dev", "date")
	other.Session = "another"
	p.event("a", &desk.Event{Type: desk.Asked, Ask: other})
	p.event("b", &desk.Event{Type: desk.Asked, Ask: ask("4", "dev", "date")}) // the same session's name
	title("1 of 3")
	flood := ask("6", "dev", "date")
	flood.Dropped = 7
	p.event("a", &desk.Event{Type: desk.Asked, Ask: flood})
	title("1 of 4")
	if !strings.Contains(p.screen(), "7 more") {
		t.Errorf("what was refused is not counted:\n%s", p.screen())
	}
	for _, id := range []string{"2", "3", "6"} {
		p.event("a", &desk.Event{Type: desk.Gone, Ask: ask(id, "dev", "date"), Why: "left"})
	}
	title("")
	p.keys("esc", "enter")
	title("")
}

func TestFailures(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.fail = errors.New("gone \x1b[2J")
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("1", "dev", "aws sts")})
	p.press("enter", "a")
	if !strings.Contains(p.screen(), `not approved: gone \e[2J`) {
		t.Errorf("not told:\n%s", p.screen())
	}
	p.fits()
	p.tell(updateMsg{Socket: "a"})
	if !strings.Contains(p.screen(), "failed") {
		t.Errorf("not shown as failed:\n%s", p.screen())
	}
}

func TestDomainsGo(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.busy()
	p.tell(updateMsg{Socket: "a"})
	if s := p.screen(); !strings.Contains(s, "1 waiting, 1 domain") || strings.Count(s, "domain ended") != 2 {
		t.Errorf("after a domain's end:\n%s", s)
	}
}

func TestQuit(t *testing.T) {
	for _, k := range []string{"q", "ctrl+c"} {
		p := newPerson(t, 80, 24)
		p.busy()
		p.keys(k)
		if !p.quit || len(p.did) > 0 {
			t.Errorf("%s: quit %v, did %q", k, p.quit, p.did)
		}
	}
}

func TestRecentIsBounded(t *testing.T) {
	p := newPerson(t, 80, 24)
	p.event("a", &desk.Event{Type: desk.Asked, Ask: ask("keep", "dev", "aws sts")})
	for i := range maxRecent + 50 {
		p.clock = p.clock.Add(time.Second)
		a := ask(fmt.Sprint(i), "dev", "date")
		p.event("a", &desk.Event{Type: desk.Started, Ask: a, Auto: true})
		p.event("a", &desk.Event{Type: desk.Finished, Ask: a, Auto: true, Result: &hostrun.Result{}})
	}
	if len(p.requests) != maxRecent+1 || p.find(Key{"a", "keep"}) == nil || p.find(Key{"a", "0"}) != nil {
		t.Errorf("%d requests", len(p.requests))
	}
}
