package console

import (
	"context"
	"log/slog"

	"github.com/lazaret-dev/lazaret/escalate/desk"
)

// Headless serves until ctx ends: commands that the rules cover run, all others
// are left to wait for a person. What happens goes to the log, whose handler
// escapes what is not printable.
func Headless(ctx context.Context, h *Hub, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	for u := range h.Updates() {
		switch {
		case u.Problem != "":
			log.Warn("a coordinator has no desk for us", "socket", u.Socket, "error", u.Problem)
		case u.Guard != nil && u.Guard.Warning() != "":
			log.Warn("a domain's guard", "profile", u.Guard.Of.Profile, "workspace", u.Guard.Of.Workspace, "state", u.Guard.Warning())
		case u.Event == nil:
			log.Debug("domain", "socket", u.Socket, "open", u.Open)
		default:
			logEvent(log, u.Event)
		}
	}
	return <-ended
}

func logEvent(log *slog.Logger, e *desk.Event) {
	about := []any{"request", e.ID, "profile", e.Ask.Domain.Profile, "session", e.Ask.Session, "command", e.Ask.Command}
	switch e.Type {
	case desk.Asked:
		log.Info("waits for a person", append(about, "why", e.View.Why)...)
	case desk.Started:
		log.Info("runs by rule", append(about, "program", e.View.Program, "dir", e.View.Dir)...)
	case desk.Finished:
		if e.Result.Err != nil {
			log.Error("could not be run", append(about, "error", e.Result.Err)...)
			return
		}
		log.Info("has ended", append(about, "exit_code", e.Result.ExitCode)...)
	case desk.Gone:
		log.Info("is gone", append(about, "why", e.Why)...)
	}
}
