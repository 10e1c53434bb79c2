package escalate

import (
	"sync"
	"time"
)

// Sayer tells once, in words, that a request waits. Its methods may be called at
// the same time.
type Sayer struct {
	say   func(string)
	timer *time.Timer

	// mu guards the fields below.
	mu   sync.Mutex
	last string
	said string
}

// Say calls say when a request has waited for a moment, and once more when whom
// it waits for has changed.
func Say(say func(string)) *Sayer {
	s := &Sayer{say: say}
	s.timer = time.AfterFunc(sayAfter, s.due)
	return s
}

// News takes one of the News values.
func (s *Sayer) News(news string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = news
	if s.said != "" && s.said != news {
		s.speak()
	}
}

func (s *Sayer) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.speak()
}

// speak needs s.mu.
func (s *Sayer) speak() {
	text := map[string]string{
		NewsNobody: "nobody is there to ask: waiting for a lazaret console on the host",
		NewsAway:   "the terminal of this session is away: waiting for it",
		NewsAsked:  "waiting for a person on the host to answer",
	}[s.last]
	if text != "" && s.said != s.last {
		s.said = s.last
		s.say(text)
	}
}

// Stop ends it.
func (s *Sayer) Stop() { s.timer.Stop() }
