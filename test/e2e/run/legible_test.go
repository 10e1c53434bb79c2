package run

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// hostile asks with everything that could show another command than the one that
// runs, after questions that the terminal answers as if keys were pressed.
const hostile = `#!/bin/bash
args=($'ls\x1b[2K\rgit status' $'a\xe2\x80\xaegnp.sh' $'rm\xe2\x80\x8b' $'v\xf3\xa0\x84\x80' "git status$(printf '%5000s'); rm" $'x\x1b]52;c;eA==\a' $'\xc2\x9b31m' $'\xd1\x81\xd0\xbe\xd1\x80\xd1\x83' $'Q\\n\x1b[200~a\x1b[201~')
for i in {1..300}; do args+=("n$i"); done
printf '\e]0;aaaa\a\e[c\e[>c\e[>q\e[21t\e]52;c;?\a\eP$qm\e\\\e[?1000h\e[?1003h\e[?2004h'
lazaret-escalate -j $'case 22 \e[2J\xe2\x80\xae' -- printf '<%s>' "${args[@]}" >/tmp/host
code=$?
printf '\e[?1000l\e[?1003l\e[?2004l\e[2J\e[H'
printf '<%s>' "${args[@]}" | cmp - /tmp/host && echo the same
echo "done=$code"
`

// What the prompt shows is what runs: inert, whole, and read to its end before it
// can be approved, at 80 by 24 and at 40 columns.
func TestLegible(t *testing.T) {
	h := harness.New(t, escalation(harness.Debian))
	ws := h.Workspace()
	h.WriteFile(filepath.Join(ws, "hostile.sh"), hostile)
	p := open(t, h, "a", ws, "(lazaret run -- sh)")
	p.sees("#")
	for _, width := range []string{"80", "40"} {
		p.types("-l", "clear")
		p.types("Enter")
		tmux(h, "resize-window", "-t", p.name, "-x", width, "-y", "24").OK(t)
		p.types("-l", "bash /workspace/hostile.sh")
		p.types("Enter")
		p.sees(`case 22 \e[2J\u202e`)
		p.answers("a")
		p.sees("read on to approve")
		var all []string
		for !strings.Contains(p.screen(), "end of the command") {
			before := p.screen()
			all = append(all, before)
			p.types("Space")
			h.Eventually("the next page shows", patience, func() bool { return p.screen() != before })
			if len(all) > 60 {
				t.Fatalf("no end after 60 pages:\n%s", before)
			}
		}
		all = append(all, p.screen())
		text := ""
		for _, page := range all {
			for line := range strings.Lines(page) {
				if strings.ContainsFunc(line, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
					t.Errorf("not inert at %s columns: %q", width, line)
				}
				text += strings.TrimSpace(line)
			}
		}
		for _, want := range []string{`ls\e[2K\rgit`, `a\u202egnp.sh`, `rm\u200b`, `v\U000e0100`, `\s{5000}; rm`, `x\e]52;c;eA==\x{07}`, `\x{9b}31m`, `\u0441\u043e\u0440\u0443`, "n1 ", "n300"} {
			if !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(want, " ", "")) {
				t.Errorf("at %s columns there is no %s in\n%s", width, want, strings.Join(all, "\n"))
			}
		}
		p.answers("a")
		p.sees("done=0")
		p.sees("the same")
	}
	// The record has the bytes.
	list := h.Run("lazaret", "audit", "list", "--workspace", ws, "--kind", "escalation.asked", "--json").OK(t)
	var e struct{ Payload struct{ Command string } }
	line, _, _ := strings.Cut(list, "\n")
	if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.Contains(e.Payload.Command, "ls\x1b[2K\rgit status") || !strings.Contains(e.Payload.Command, "git status"+strings.Repeat(" ", 5000)+"; rm") {
		t.Errorf("recorded %.300q, %v", line, err)
	}
	tmux(h, "kill-session", "-t", p.name).OK(t)
	h.DomainEnds("default", ws)
}
