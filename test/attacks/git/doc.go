// Package git attacks Git Sentry from inside: techniques of a hostile agent, tried
// before, during and after what the developer does, and then his everyday commands,
// which must not run a single payload. The same techniques are played against naive
// mounts, to which a known part of them must succeed: so the suite can fail.
package git
