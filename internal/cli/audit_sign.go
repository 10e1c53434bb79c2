package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
)

const (
	// signedHead in a Domain Root is the statement that was signed last.
	signedHead = "audit-head"
	// signNamespace keeps these signatures apart from others of the same key.
	signNamespace = "lazaret-audit"
	headMagic     = "lazaret-audit-head 1"
	maxStatement  = 4 << 10
)

// headStatement is what is signed: a line each.
func headStatement(domain string, heads map[string]audit.Head, now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\ndomain %s\ntime %s\n", headMagic, domain, now.UTC().Format(time.RFC3339))
	for _, chain := range audit.Chains() {
		fmt.Fprintf(&b, "%s %d %s\n", chain, heads[chain].Seq, heads[chain].Hash)
	}
	return b.Bytes()
}

// parseHead reads a statement, which must be exactly as headStatement writes it.
func parseHead(data []byte, domain string) (map[string]audit.Head, error) {
	var at string
	heads := map[string]audit.Head{}
	for line := range strings.Lines(string(data)) {
		w := strings.Fields(line)
		switch {
		case len(w) == 2 && w[0] == "time":
			at = w[1]
		case len(w) == 3:
			var h audit.Head
			if _, err := fmt.Sscanf(w[1], "%d", &h.Seq); err != nil || h.Hash.UnmarshalText([]byte(w[2])) != nil {
				return nil, errors.New("it is no head of an audit")
			}
			heads[w[0]] = h
		}
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil || !bytes.Equal(headStatement(domain, heads, t), data) {
		return nil, fmt.Errorf("it is no head of the audit of domain %s", domain)
	}
	return heads, nil
}

func auditSign(c *cli.Context) error {
	if c.NArg() > 0 {
		return usageError("sign takes no arguments")
	}
	r, err := auditDomain(c)
	if err != nil {
		return err
	}
	v, err := audit.Verify(auditPager(r))
	if err != nil {
		return fmt.Errorf("nothing was signed: %w", err)
	}
	path := c.String("output")
	if path == "" {
		path = filepath.Join(r.anchor.Root, signedHead)
	}
	statement := headStatement(r.anchor.Hash, v.Heads, time.Now())
	sig, err := sshKeygen(c, statement, "-Y", "sign", "-n", signNamespace, "-f", c.String("key"))
	if err != nil {
		return fmt.Errorf("sign with %s: %w", c.String("key"), err)
	}
	if !bytes.HasPrefix(sig, []byte("-----BEGIN SSH SIGNATURE-----")) {
		return fmt.Errorf("sign with %s: ssh-keygen printed no signature", c.String("key"))
	}
	// The statement last: it is not taken without its signature.
	if err := atomicfile.Write(path+".sig", sig, 0o600, true); err != nil {
		return err
	}
	if err := atomicfile.Write(path, statement, 0o600, true); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "signed %d main and %d egress records: %s\n", v.Heads[audit.Main].Seq, v.Heads[audit.Egress].Seq, config.Printable(path))
	return err
}

// sshKeygen runs ssh-keygen, which may ask for a passphrase at the terminal.
func sshKeygen(c *cli.Context, in []byte, args ...string) ([]byte, error) {
	program, err := fixedpath.Look("ssh-keygen")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(c.Context, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		// Its exit status is not to become ours.
		return nil, fmt.Errorf("ssh-keygen: %s: %.300s", err.Error(), config.Printable(strings.TrimSpace(errs.String()+" "+out.String())))
	}
	return out.Bytes(), nil
}

// readSigned reads the signed head that verify is to hold the chains against; nil
// where there is none. who names its key.
func readSigned(c *cli.Context, r resolved) (heads map[string]audit.Head, who string, err error) {
	path, named := c.String("signed"), c.IsSet("signed")
	if !named {
		path = filepath.Join(r.anchor.Root, signedHead)
	}
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		if c.IsSet("signer") {
			return nil, "", fmt.Errorf("nothing was signed in domain %s: lazaret audit sign does", r.anchor.Hash)
		}
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("signed head: %w", err)
	}
	if heads, err = parseHead(data, r.anchor.Hash); err != nil {
		return nil, "", fmt.Errorf("signed head %s: %w", path, err)
	}
	if who, err = checkSignature(c, data, path+".sig"); err != nil {
		return nil, "", fmt.Errorf("signature of %s: %w", path, err)
	}
	return heads, who, nil
}

// checkSignature needs the key in --signer to have signed; without it, any key.
func checkSignature(c *cli.Context, data []byte, sig string) (who string, err error) {
	if !c.IsSet("signer") {
		out, err := sshKeygen(c, data, "-Y", "check-novalidate", "-n", signNamespace, "-s", sig)
		return strings.TrimSpace(string(out)), err
	}
	key, err := readSmall(c.String("signer"))
	if err != nil {
		return "", fmt.Errorf("--signer: %w", err)
	}
	w := strings.Fields(string(key))
	if len(w) < 2 || strings.Contains(strings.TrimSpace(string(key)), "\n") {
		return "", fmt.Errorf("--signer: %s is not one public key, as in a .pub file", c.String("signer"))
	}
	dir, err := os.MkdirTemp("", "lazaret-signer-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a public key
	allowed := filepath.Join(dir, "allowed")
	line := fmt.Sprintf("%s namespaces=%q %s %s\n", signNamespace, signNamespace, w[0], w[1])
	if err := atomicfile.Write(allowed, []byte(line), 0o600, false); err != nil {
		return "", err
	}
	out, err := sshKeygen(c, data, "-Y", "verify", "-n", signNamespace, "-f", allowed, "-I", signNamespace, "-s", sig)
	return strings.TrimSpace(string(out)), err
}

// readSmall reads a file of a few lines.
func readSmall(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxStatement {
		return nil, fmt.Errorf("%s is not a file of %d bytes at most", path, maxStatement)
	}
	return os.ReadFile(path)
}

// verifyView is what verify prints as JSON.
type verifyView struct {
	Domain string `json:"domain"`
	Whole  bool   `json:"whole"`
	audit.Verified
	Bad    *audit.BadError `json:"bad,omitempty"` // the first record that is not what it was
	Signed string          `json:"signed,omitempty"`
}

func auditVerify(c *cli.Context) error {
	if c.NArg() > 0 {
		return usageError("verify takes no arguments")
	}
	r, err := auditDomain(c)
	if err != nil {
		return err
	}
	view := verifyView{Domain: r.anchor.Hash}
	heads, who, err := readSigned(c, r)
	if err != nil {
		return err
	}
	view.Signed = who
	view.Verified, err = audit.Verify(auditPager(r), heads)
	if view.Whole = err == nil; err != nil && !errors.As(err, &view.Bad) {
		return err
	}
	if c.Bool("json") {
		return errors.Join(printInertJSON(c.App.Writer, view), err)
	}
	if err != nil {
		return err
	}
	p := &printer{w: c.App.Writer}
	for _, chain := range []string{audit.Main, audit.Egress} {
		dropped := ""
		if n := view.Heads[chain].Seq - view.Counts[chain]; n > 0 {
			dropped = fmt.Sprintf(", %d before them were dropped by rule", n)
		}
		p.printf("%-7s %d records are whole%s\n", chain, view.Counts[chain], dropped)
	}
	if who != "" {
		p.printf("signed  %s\n", config.Printable(who))
	}
	return p.err
}
