package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/store"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// auditTimeout bounds the wait for one page of a coordinator's.
	auditTimeout = 15 * time.Second
	// auditWait bounds the wait for a coordinator that is starting or ending.
	auditWait = 10 * time.Second
)

func auditCommand() *cli.Command {
	where := []cli.Flag{
		&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
		&cli.StringFlag{Name: "workspace", Aliases: []string{"w"}, Usage: "the domain of the workspace at `PATH`", Value: ".", TakesFile: true},
		&cli.StringFlag{Name: "domain", Usage: "the domain with this `HASH`, also one whose workspace is gone"},
		&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
	}
	filters := []cli.Flag{
		&cli.StringFlag{Name: "since", Usage: "only from `TIME` on: RFC 3339, or how long ago, such as 90m or 7d"},
		&cli.StringFlag{Name: "until", Usage: "only before `TIME`"},
		&cli.StringSliceFlag{Name: "kind", Usage: "only records of `KIND`, such as escalation or escalation.run; may be repeated"},
		&cli.StringFlag{Name: "session", Usage: "only of the session whose id begins with `ID`"},
		&cli.StringSliceFlag{Name: "verdict", Usage: "only with `VERDICT`, such as approved, denied or blocked; may be repeated"},
	}
	asJSON := &cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line", DisableDefaultText: true}
	flags := func(more ...[]cli.Flag) []cli.Flag { return slices.Concat(append([][]cli.Flag{where}, more...)...) }
	return &cli.Command{
		Name:  "audit",
		Usage: "show and check what has happened in a domain",
		Description: "Escalations, the network's decisions, changes of what is allowed, the life of sessions and\n" +
			"containers, and what befell the guards, in chains of hashes. Also of a domain that is not in use.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the records, oldest first",
				Flags:  flags(filters, []cli.Flag{&cli.IntFlag{Name: "last", Usage: "only the last `N` of them"}, asJSON}),
				Action: auditList,
			},
			{
				Name: "show", Usage: "show one record in full", ArgsUsage: "[CHAIN:]NUMBER",
				Description: "The first column of a list. CHAIN is main, which is the default, or egress.",
				Flags:       flags([]cli.Flag{asJSON}), Action: auditShow,
			},
			{
				Name: "verify", Usage: "check that no record was changed, removed, exchanged or cut off",
				Description: "Names the first record that is not what it was; the exit status is 1 then. A signed head, by\n" +
					"default the one that lazaret audit sign has left in the domain, must be a record of the chain.",
				Flags: flags([]cli.Flag{
					&cli.StringFlag{Name: "signed", Usage: "the head that was signed, with its signature in `FILE`.sig", TakesFile: true},
					&cli.StringFlag{Name: "signer", Usage: "the public key in `FILE` must have signed it", TakesFile: true},
					asJSON,
				}),
				Action: auditVerify,
			},
			{
				Name: "export", Usage: "print the records for another program",
				Flags: flags(filters, []cli.Flag{
					&cli.StringFlag{Name: "format", Usage: "`FORMAT` is jsonl, ocsf or cef", Value: "jsonl"},
				}),
				Action: auditExport,
			},
			{
				Name: "sign", Usage: "sign where the chains have come to with an SSH key",
				Description: "Checks the chains first. The head and its signature are written to audit-head and\n" +
					"audit-head.sig in the domain; a copy that is kept elsewhere also shows that all of it was replaced.",
				Flags: flags([]cli.Flag{
					&cli.StringFlag{Name: "key", Usage: "sign with the private key in `FILE`, or the agent's of the public key in it", TakesFile: true, Required: true},
					&cli.StringFlag{Name: "output", Usage: "write to `FILE` and FILE.sig", TakesFile: true},
				}),
				Action: auditSign,
			},
		},
	}
}

// auditDomain is the domain that the flags name.
func auditDomain(c *cli.Context) (r resolved, err error) {
	hash := c.String("domain")
	if hash == "" {
		return usedDomain(c, c.String("workspace"))
	}
	if !domain.ValidHash(hash) {
		return r, usageError("--domain: %q is not a domain's hash; lazaret domain prints it", hash)
	}
	if r, err = usersSettings(c); err != nil {
		return r, err
	}
	if r.anchor, err = recordedDomain(r.cfg.General.DataRoot, hash); err != nil {
		err = fmt.Errorf("domain %s: %w", hash, err)
	}
	return r, err
}

// auditPager reads from the coordinator, or in its place, under the lock that would
// start one, where none lives. It lets go of that after every page.
func auditPager(r resolved) audit.Pager {
	return func(chain string, after uint64) (p audit.Page, err error) {
		for end := time.Now().Add(auditWait); ; time.Sleep(20 * time.Millisecond) {
			again := false
			if p, again, err = auditPage(r, chain, after); !again || time.Now().After(end) {
				return p, err
			}
		}
	}
}

// auditPage tells with again that a coordinator is starting or ending.
func auditPage(r resolved, chain string, after uint64) (p audit.Page, again bool, err error) {
	ask := func() error {
		conn, err := wire.Dial(r.anchor.SocketPath(r.cfg.General.ControlDir), auditTimeout)
		if err != nil {
			return err
		}
		err = conn.Call(wire.AuditPath(chain, after), nil, &p, auditTimeout)
		return errors.Join(err, conn.Close())
	}
	if err = ask(); !errors.Is(err, wire.ErrNoCoordinator) {
		var e *wire.Error
		return p, wire.Cut(err) || errors.As(err, &e) && e.Code == wire.CodeClosing, err
	}
	path := r.anchor.LockPath(r.cfg.General.ControlDir)
	lock, err := wire.TryLock(path)
	if errors.Is(err, wire.ErrLocked) {
		return p, true, fmt.Errorf("%w by %s: try again", errInUse, wire.LockHolder(path))
	}
	if err != nil {
		return p, false, err
	}
	if err = ask(); errors.Is(err, wire.ErrNoCoordinator) { // it may have come meanwhile
		p, err = store.ReadPage(r.anchor.Root, chain, after)
		return p, false, errors.Join(err, lock.Remove())
	}
	return p, false, errors.Join(err, lock.Release())
}

// placed is an entry with its chain.
type placed struct {
	Chain string `json:"chain"`
	audit.Entry
}

// entriesOf are a chain's, oldest first. The last may come with an error.
func entriesOf(pager audit.Pager, chain string) iter.Seq2[placed, error] {
	errStop := errors.New("enough")
	return func(yield func(placed, error) bool) {
		err := pager.Each(chain, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			for _, e := range entries {
				if !yield(placed{chain, e}, nil) {
					return errStop
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(placed{}, err)
		}
	}
}

// eachPlaced calls f with the entries of all chains in the order of their times.
func eachPlaced(pager audit.Pager, chains []string, f func(placed) error) error {
	type stream struct {
		next func() (placed, error, bool)
		head placed
		more bool
	}
	all := make([]*stream, 0, len(chains))
	for _, chain := range chains {
		next, stop := iter.Pull2(entriesOf(pager, chain))
		defer stop()
		all = append(all, &stream{next: next})
	}
	advance := func(s *stream) (err error) {
		s.head, err, s.more = s.next()
		return err
	}
	for _, s := range all {
		if err := advance(s); err != nil {
			return err
		}
	}
	for {
		all = slices.DeleteFunc(all, func(s *stream) bool { return !s.more })
		if len(all) == 0 {
			return nil
		}
		first := slices.MinFunc(all, func(a, b *stream) int { return a.head.Time.Compare(b.head.Time) })
		if err := f(first.head); err != nil {
			return err
		}
		if err := advance(first); err != nil {
			return err
		}
	}
}

// auditFilter says which records are wanted.
type auditFilter struct {
	since, until    time.Time
	kinds, verdicts []string
	session         string
}

func newAuditFilter(c *cli.Context, now time.Time) (f auditFilter, err error) {
	if f.since, err = auditTime(c.String("since"), now); err != nil {
		return f, usageError("--since: %w", err)
	}
	if f.until, err = auditTime(c.String("until"), now); err != nil {
		return f, usageError("--until: %w", err)
	}
	f.kinds, f.verdicts, f.session = c.StringSlice("kind"), c.StringSlice("verdict"), c.String("session")
	return f, nil
}

// auditTime reads a time, or how long ago it was; "" is the zero Time.
func auditTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation("2006-01-02", s, now.Location()); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 1e5 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2026-01-31, 2026-01-31T15:04:05Z, or how long ago it was: 90m, 7d", s)
}

// chains are those that can have wanted records.
func (f auditFilter) chains() []string {
	if len(f.kinds) == 0 {
		return audit.Chains()
	}
	return slices.DeleteFunc(audit.Chains(), func(chain string) bool {
		return chain == audit.Egress && !slices.ContainsFunc(f.kinds, func(k string) bool { return strings.HasPrefix(k, "egress") })
	})
}

// wants lets damaged ones through: nobody knows what they were.
func (f auditFilter) wants(e audit.Entry) bool {
	if e.Damage != "" {
		return true
	}
	group, _, _ := strings.Cut(e.Kind, ".")
	return (f.since.IsZero() || !e.Time.Before(f.since)) && (f.until.IsZero() || e.Time.Before(f.until)) &&
		(len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind) || slices.Contains(f.kinds, group)) &&
		(len(f.verdicts) == 0 || slices.Contains(f.verdicts, e.Verdict)) && strings.HasPrefix(e.Session, f.session)
}

// eachWanted calls f with what the filters let through.
func eachWanted(c *cli.Context, r resolved, do func(placed) error) error {
	f, err := newAuditFilter(c, time.Now())
	if err != nil {
		return err
	}
	return eachPlaced(auditPager(r), f.chains(), func(e placed) error {
		if !f.wants(e.Entry) {
			return nil
		}
		return do(e)
	})
}

func auditList(c *cli.Context) error {
	if c.NArg() > 0 {
		return usageError("list takes no arguments: lazaret audit show prints one record")
	}
	r, err := auditDomain(c)
	if err != nil {
		return err
	}
	shown, last := 0, c.Int("last")
	print1 := func(e placed) error {
		shown++
		return printRecord(c, e)
	}
	var kept []placed // the last ones
	err = eachWanted(c, r, func(e placed) error {
		if last <= 0 {
			return print1(e)
		}
		if len(kept) == 2*last {
			kept = append(kept[:0], kept[last:]...)
		}
		kept = append(kept, e)
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range kept[max(0, len(kept)-last):] {
		if err := print1(e); err != nil {
			return err
		}
	}
	if shown == 0 {
		return nothing(c, "nothing of the kind is recorded in domain %s (profile %s)", r.anchor.Hash, r.anchor.Profile)
	}
	return nil
}

// printRecord prints one line.
func printRecord(c *cli.Context, e placed) error {
	if c.Bool("json") {
		data, err := json.Marshal(e)
		if err == nil {
			_, err = fmt.Fprintln(c.App.Writer, inertJSON(string(data)))
		}
		return err
	}
	if e.Damage != "" {
		_, err := fmt.Fprintf(c.App.Writer, "%-12s damaged: %s\n", e.place(), config.Printable(e.Damage))
		return err
	}
	line := fmt.Sprintf("%-12s %s %s", e.place(), e.Time.Local().Format("2006-01-02 15:04:05"), e.Kind)
	for _, word := range []string{e.Verdict, abbreviated("session ", e.Session), abbreviated("in ", e.Container), summary(e.Payload)} {
		if word != "" {
			line += " " + config.Printable(word)
		}
	}
	_, err := fmt.Fprintln(c.App.Writer, line)
	return err
}

func (p placed) place() string { return fmt.Sprintf("%s:%d", p.Chain, p.Seq) }

func abbreviated(word, id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("%s%.12s", word, id)
}

// summaryWidth bounds a summary, in bytes before they are made printable.
const summaryWidth = 160

// summary tells what matters most of a payload.
func summary(payload json.RawMessage) string {
	var all map[string]any
	if json.Unmarshal(payload, &all) != nil {
		return ""
	}
	var words []string
	for _, k := range []string{
		"guard", "desk", "command", "name", "addr", "port", "entry", "operation", "mode", "exit_code", "count", "repeats",
		"reason", "message", "error", "known", "workspace",
	} {
		if v, ok := all[k]; ok {
			text := fmt.Sprint(v)
			more := ""
			if len(text) > summaryWidth {
				text, more = strings.ToValidUTF8(text[:summaryWidth], ""), "…"
			}
			// Else an agent's text could go on as if it were the next field.
			if strings.ContainsAny(text, " \t\n=\"") {
				text = strconv.Quote(text)
			}
			text += more
			words = append(words, k+"="+text)
		}
	}
	return strings.Join(words, " ")
}

func auditShow(c *cli.Context) error {
	chain, number, found := strings.Cut(c.Args().First(), ":")
	if !found {
		chain, number = audit.Main, chain
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if c.NArg() != 1 || err != nil || seq == 0 || !slices.Contains(audit.Chains(), chain) {
		return usageError("name one record as lazaret audit list does: 12, main:12 or egress:12")
	}
	r, err := auditDomain(c)
	if err != nil {
		return err
	}
	page, err := auditPager(r)(chain, seq-1)
	if err != nil {
		return err
	}
	if len(page.Entries) == 0 || page.Entries[0].Seq != seq {
		return fmt.Errorf("domain %s has no record %s:%d", r.anchor.Hash, chain, seq)
	}
	e := placed{chain, page.Entries[0]}
	if c.Bool("json") || e.Damage != "" {
		return printRecord(c, e)
	}
	p := &printer{w: c.App.Writer}
	row := func(name, value string) {
		if value != "" {
			p.printf("%-14s %s\n", name, config.Printable(value))
		}
	}
	row("record", e.place())
	row("time", e.Time.Format(time.RFC3339Nano))
	row("kind", e.Kind)
	row("verdict", e.Verdict)
	row("session", e.Session)
	row("container", e.Container)
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.Payload, &all); err != nil {
		return fmt.Errorf("record %s: %w", e.place(), err)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		var text string
		if json.Unmarshal(all[k], &text) != nil {
			text = string(all[k])
		}
		row(k, text)
	}
	row("previous", e.Prev.String())
	row("hash", e.Hash.String())
	return p.err
}
