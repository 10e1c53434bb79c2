// Package audit tests what a domain's audit tells of real sandboxes, with a live
// coordinator, with one that was killed, and with none.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const config = `[general]
control_dir = "~"
[escalation]
timeout = "3m"
auto_approve = [["uname"]]
[profiles.default.network]
mode = "filtered"
allow = ["listed.example"]
`

// kinds are those of all records of the main chain, with their verdicts.
func kinds(t *testing.T, h *harness.Harness, ws string, args ...string) (all []string) {
	t.Helper()
	args = append([]string{"audit", "list", "--json", "--workspace", ws}, args...)
	for line := range strings.Lines(h.Run("lazaret", args...).OK(t)) {
		var e struct{ Kind, Verdict string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, strings.TrimSpace(e.Kind+" "+e.Verdict))
	}
	return all
}

func TestAudit(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: config})
	ws := h.Workspace()
	verify := func(more ...string) harness.Result {
		return h.Run("lazaret", append([]string{"audit", "verify", "--workspace", ws}, more...)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	desk := h.Command(ctx, "lazaret", "console", "--headless")
	ended := make(chan harness.Result, 1)
	go func() { ended <- harness.Do(desk) }()
	defer func() {
		cancel()
		if r := <-ended; t.Failed() {
			t.Logf("the desk: %s", r.Stderr)
		}
	}()
	h.Detached(ws, "box", harness.Busybox, "sleep", "600")
	h.Podman("exec", "-w", "/workspace", "box", "lazaret-escalate", "-j", "for the audit", "--timeout", "1m", "--", "uname", "-s").OK(t)
	if r := h.Podman("exec", "box", "nslookup", "evil.example"); r.Code == 0 {
		t.Errorf("a name that is not listed was found: %s", r.Stdout)
	}
	h.Run("lazaret", "net", "allow", "--workspace", ws, "other.example").OK(t)
	h.Eventually("the refused name is recorded", time.Minute, func() bool {
		return strings.Contains(h.Run("lazaret", "audit", "list", "--workspace", ws, "--kind", "egress", "--verdict", "blocked").OK(t), "name=evil.example")
	})

	// With a live coordinator.
	verify().OK(t)
	h.Eventually("the result is recorded", time.Minute, func() bool {
		return slices.Contains(kinds(t, h, ws), "escalation.run exited")
	})
	got := kinds(t, h, ws)
	at := -1
	for _, want := range []string{"coordinator.started", "container.started", "session.started", "escalation.asked", "escalation.decided approved", "escalation.run exited", "network.changed allow"} {
		next := slices.Index(got[at+1:], want)
		if next < 0 {
			t.Fatalf("no %s after record %d of %q", want, at+1, got)
		}
		at += 1 + next
	}

	// With one that was killed, whose sandbox lives.
	if err := syscall.Kill(h.Domain("default", ws).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	verify().OK(t)
	if now := kinds(t, h, ws); !slices.Equal(now[:len(got)], got) {
		t.Errorf("before the kill %q, after it %q", got, now)
	}

	// With its successor, and with none.
	h.Podman("exec", "-w", "/", "box", "true").OK(t)
	verify().OK(t)
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	h.Eventually("the end is recorded", time.Minute, func() bool {
		now := kinds(t, h, ws, "--kind", "coordinator")
		return fmt.Sprint(now) == "[coordinator.started coordinator.started coordinator.ended]"
	})
	key := filepath.Join(h.Home, "key")
	h.Run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).OK(t)
	h.Run("lazaret", "audit", "sign", "--workspace", ws, "--key", key).OK(t)
	if out := verify("--signer", key+".pub").OK(t); !strings.Contains(out, "Good \"lazaret-audit\" signature") {
		t.Errorf("verify prints %q", out)
	}
	h.Run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key+"2").OK(t)
	verify("--signer", key+"2.pub").Fails(t, 1, "signature of")
	lines := len(kinds(t, h, ws))
	for _, format := range []string{"jsonl", "ocsf", "cef"} {
		out := h.Run("lazaret", "audit", "export", "--workspace", ws, "--format", format).OK(t)
		if n := strings.Count(out, "\n") + 1; n != lines {
			t.Errorf("%s has %d lines, want %d", format, n, lines)
		}
	}

	// The end cut off.
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(h.DataRoot(), "domains", hash, "state.db"), 0o600, &bbolt.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(audit.Main))
		k, _ := b.Cursor().Last()
		return b.Delete(k)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	verify().Fails(t, 1, "main record", "missing")
}
