package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/review"
)

// A session of an agent's, as lazaret review and status tell of it afterwards.
func TestReviewed(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(dir, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	r := resolved{anchor: domain.New("claude", ws, dir)}
	if err := os.MkdirAll(r.anchor.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := domain.WriteRecord(r.anchor); err != nil {
		t.Fatal(err)
	}
	look := func(how func(context.Context, string, review.Options) (*review.Report, error)) *reviewView {
		t.Helper()
		v, err := reviewed(t.Context(), r, how)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := look(review.Look); len(v.Reports) != 0 || summaryLine(v, "default") != "" {
		t.Errorf("before any session: %+v", v)
	}
	file := review.File(r.anchor.Root, false)
	if err := review.Begin(t.Context(), file, review.For(ws, os.Getuid(), gitconf.Options{})); err != nil {
		t.Fatal(err)
	}
	if v := look(review.Look); len(v.Reports) != 1 || v.findings() != 0 || summaryLine(v, "default") != "" {
		t.Errorf("before any change: %+v", v)
	}
	for _, n := range []string{"Makefile", ".envrc", "a\x1b[2K", "justfile", "\u202eb.mk"} {
		if err := os.WriteFile(filepath.Join(ws, n), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := review.End(t.Context(), file, review.For(ws, os.Getuid(), gitconf.Options{})); err != nil {
		t.Fatal(err)
	}
	v := look(review.Look)
	if got, want := summaryLine(v, "default"), "look at what tools on this host run or obey before you use them here: .envrc, Makefile, justfile and 1 more (lazaret review -p claude)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	var text, data bytes.Buffer
	if err := errors.Join(printReview(&text, v, false), printReviewJSON(&data, v)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), data.String()} {
		if !strings.Contains(out, "Makefile") || !strings.Contains(out, `\u202eb.mk`) || strings.ContainsAny(out, "\x1b\u202e") {
			t.Errorf("printed %q", out)
		}
	}
	if n := strings.Count(text.String(), "build: "); n != 1 {
		t.Errorf("%d groups of one reason:\n%s", n, &text)
	}
	waiting, err := waitingReviews(dir, map[string]bool{})
	if err != nil || len(waiting) != 1 || waiting[0] != (reviewStatus{Profile: "claude", Workspace: ws, Pending: 4, hash: r.anchor.Hash}) {
		t.Errorf("status tells %+v, %v", waiting, err)
	}
	if err := v.verdict(); err == nil || !errors.As(err, new(*exitError)) {
		t.Errorf("with findings: %v", err)
	}
	if waiting, err = waitingReviews(dir, map[string]bool{r.anchor.Hash: true}); err != nil || len(waiting) != 0 {
		t.Errorf("of a live domain status tells %+v, %v", waiting, err)
	}
	if v := look(review.Accept); v.findings() != 4 {
		t.Errorf("accepted %+v", v)
	}
	if v := look(review.Look); v.findings() != 0 || v.verdict() != nil {
		t.Errorf("after that: %+v", v)
	}

	// A session whose end was not noted, also where a full disk has kept its
	// beginning from being.
	if err := review.Begin(t.Context(), file, review.For(ws, os.Getuid(), gitconf.Options{})); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, file+".open"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "Makefile"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v := look(review.Look); v.findings() != 1 || summaryLine(v, "default") == "" {
		t.Errorf("with a record of the older name: %+v", v)
	}
	waiting, err = waitingReviews(dir, map[string]bool{})
	if err != nil || len(waiting) != 1 || !waiting[0].Open {
		t.Errorf("of a session without an end status tells %+v, %v", waiting, err)
	}
	text.Reset()
	if err := printStatus(&text, statusView{Reviews: waiting}, time.Now()); err != nil || !strings.Contains(text.String(), "not noted at its end (lazaret review)") {
		t.Errorf("status prints %q, %v", &text, err)
	}
}

// What could not be looked at is told, and is not nothing.
func TestReviewThatIsNotWhole(t *testing.T) {
	t.Parallel()
	v := &reviewView{Profile: "claude", Reports: []*review.Report{{Incomplete: "there was no time\x1b[2K"}}}
	var exit *exitError
	if err := v.verdict(); !errors.As(err, &exit) || exit.code != exitUnknown {
		t.Errorf("exit status: %v", err)
	}
	if got, want := summaryLine(v, "claude"), `what tools on this host run or obey may have changed, and not everything is known: there was no time\x1b[2K (lazaret review)`; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	v.Reports[0].Findings = []review.Finding{{Path: "package.json", Details: []string{strings.Repeat("\u202e", 1<<20) + " added"}}}
	var text bytes.Buffer
	if err := printReview(&text, v, false); err != nil || text.Len() > 4000 || !strings.Contains(text.String(), " added\n") {
		t.Errorf("printed %d bytes, %v", text.Len(), err)
	}
	v.Reports[0].Findings = []review.Finding{{Path: strings.Repeat("\u202e", 4000) + "/Makefile", Change: review.Added}}
	if got := summaryLine(v, "claude"); len(got) > 300 || !strings.Contains(got, "/Makefile (lazaret review)") || strings.Contains(got, "\u202e") {
		t.Errorf("summary %q", got)
	}
}

func TestFrame(t *testing.T) {
	t.Parallel()
	got := frame("one\ntwo is long\nthree\nfour\n", 6, 3)
	if want := "\x1b[Hone\x1b[K\r\ntwo i…\x1b[K\r\n… 2 l…\x1b[K\x1b[J"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLogText(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"time":"2026-11-29T15:43:47.498191535Z","level":"INFO","msg":"guard serves","pid":7,"git":"sentry","masks":["a"],"why":"a b"}`: `INFO  guard serves  git=sentry  masks=["a"]  pid=7  why="a b"`,
		"panic: \x1b[2J": `panic: \u001b[2J`,
		`{"time":"x","level":"WARN","msg":"\u001b[31m"}`: `x WARN  \u001b[31m`,
	} {
		if got := logText(line); !strings.HasSuffix(strings.ReplaceAll(got, `\x1b`, `\u001b`), want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A log is followed over its being renamed and begun anew, whole lines only.
func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "coordinator.log")
	old := filepath.Join(filepath.Dir(path), "coordinator-2026-11-29T15-43-47.498.log")
	put := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(old, "a\nb\n")
	put(path, "c\nd")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var last bytes.Buffer
	if found, err := (&logPrinter{w: &last, raw: true}).past(path, 2); err != nil || !found || last.String() != "b\nc\n" {
		t.Errorf("the last two: %q, %v, %v", &last, found, err)
	}
	l := &logPrinter{w: w, raw: true}
	expect := func(want string) {
		t.Helper()
		if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		for n := 0; n < len(got); {
			m, err := r.Read(got[n:])
			if err != nil {
				t.Fatalf("got %q, want %q: %v", got[:n], want, err)
			}
			n += m
		}
		if string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if _, err := l.past(path, 0); err != nil {
		t.Fatal(err)
	}
	expect("a\nb\nc\n")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.follow(ctx, path) }()
	put(path, "d\ne\n")
	expect("dd\ne\n")
	put(path, "f\n")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	put(path, "g\n")
	expect("f\ng\n")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
