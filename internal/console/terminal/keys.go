package terminal

import (
	"strings"
	"time"

	uv "github.com/charmbracelet/ultraviolet"

	"github.com/lazaret-dev/lazaret/internal/console/prompt"
)

// escTime is how long the rest of a sequence may take to come; after that an ESC
// is the key.
const escTime = 60 * time.Millisecond

// restTime is the same where more than an ESC has come: over a slow line the end
// of an arrow key or of a terminal's answer, "A", must not come to stand alone.
const restTime = 2 * time.Second

// maxPaste bounds a paste into a prompt, in bytes.
const maxPaste = 64 << 10

// keys turns what the terminal sends into keys and pastes for a prompt. What is
// neither (the mouse, answers of the terminal) is dropped.
type keys struct {
	tail  []byte
	since time.Time // of tail
	paste *strings.Builder
}

func (k *keys) take(b []byte, now time.Time, m *prompt.Model) {
	k.tail = append(k.tail, b...)
	k.since = now
	for len(k.tail) > 0 {
		n, kind := next(k.tail)
		if n == 2 && kind == escape && k.tail[1] == 'O' { // SS3, one more
			if n = 3; len(k.tail) < n {
				n = 0
			}
		}
		if n == 0 {
			if len(k.tail) > maxPaste {
				k.tail = nil
			}
			return
		}
		k.token(k.tail[:n], now, m)
		k.tail = k.tail[n:]
	}
}

// time ends the wait for the rest of a sequence.
func (k *keys) time(now time.Time, m *prompt.Model) {
	wait := escTime
	if len(k.tail) > 1 {
		wait = restTime
	}
	if len(k.tail) == 0 || now.Sub(k.since) < wait {
		return
	}
	if len(k.tail) == 1 && k.tail[0] == esc {
		m.Key("esc", "", now)
	}
	k.tail = nil
}

func (k *keys) token(b []byte, now time.Time, m *prompt.Model) {
	switch s := string(b); {
	case s == "\x1b[200~":
		k.paste = &strings.Builder{}
	case k.paste != nil && s == "\x1b[201~":
		m.Paste(k.paste.String(), now)
		k.paste = nil
	case k.paste != nil:
		if k.paste.Len() < maxPaste {
			k.paste.WriteString(strings.ReplaceAll(s, "\r", "\n"))
		}
	default:
		k.press(b, now, m)
	}
}

// press gives each key of b to the prompt.
func (k *keys) press(b []byte, now time.Time, m *prompt.Model) {
	var d uv.EventDecoder
	for len(b) > 0 {
		n, e := d.Decode(b)
		if n <= 0 {
			return
		}
		b = b[n:]
		events, multi := e.(uv.MultiEvent)
		if !multi {
			events = uv.MultiEvent{e}
		}
		for _, e := range events {
			if key, ok := e.(uv.KeyPressEvent); ok && !key.IsRepeat {
				m.Key(key.String(), key.Text, now)
			}
		}
	}
}
