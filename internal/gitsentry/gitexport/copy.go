package gitexport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
)

const (
	smallFile = 64 << 10  // HEAD, a ref, in bytes
	bigFile   = 512 << 20 // packed-refs, a log, an index
	refDepth  = 32
)

// copier copies a git directory by an allow-list of names and forms.
type copier struct {
	src     *source
	dst     string
	bare    bool
	hashLen int // bytes
	index   bool
	notes   []string
}

func (c *copier) note(format string, args ...any) {
	const most = 50
	if n := fmt.Sprintf(format, args...); len(c.notes) < most && !slices.Contains(c.notes, n) {
		c.notes = append(c.notes, n)
	}
}

func (c *copier) all() error {
	for _, step := range []func() error{c.config, c.head, c.objects, c.packedRefs, c.refs, c.shallow, c.logs, c.checkedIndex} {
		if err := step(); err != nil {
			return err
		}
	}
	for name, what := range map[string]string{
		"hooks": "hooks", "modules": "submodules' repositories", "worktrees": "linked worktrees", "lfs": "large files of git-lfs",
	} {
		if entries, err := c.src.list(name); err == nil && len(entries) > 0 {
			c.note("not exported: %s", what)
		}
	}
	slices.Sort(c.notes)
	return nil
}

func (c *copier) write(name string, data []byte) error {
	return c.stream(name, bytes.NewReader(data), 0o644)
}

// stream writes a new file; the directory that it is written to becomes visible
// as a whole or not at all.
func (c *copier) stream(name string, r io.Reader, mode fs.FileMode) error {
	path := filepath.Join(c.dst, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as git makes it
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// config writes a new configuration with what is known to be harmless.
func (c *copier) config() error {
	data, err := c.src.read("config", gitconf.MaxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	vars, err := gitconf.Parse(data)
	if err != nil {
		return fmt.Errorf("its config: %w", err)
	}
	c.hashLen = 20
	fileMode := "true"
	var remotes, branches []gitconf.Var
	for _, v := range vars {
		switch v.Section + "." + v.Key {
		case "extensions.objectformat":
			switch strings.ToLower(v.Value) {
			case "sha1":
			case "sha256":
				c.hashLen = 32
			default:
				return fmt.Errorf("its object format %.40q is not known here", v.Value)
			}
		case "extensions.refstorage":
			if v.Value != "files" {
				return fmt.Errorf("its refs are stored as %.40q, which cannot be checked: clone it in the sandbox with --ref-format=files", v.Value)
			}
		case "core.filemode":
			if strings.EqualFold(v.Value, "false") {
				fileMode = "false"
			}
		case "core.repositoryformatversion", "core.bare", "core.logallrefupdates":
		case "remote.url":
			if !goodWord(v.Subsection) || !goodURL(v.Value) {
				c.note("not exported: the remote %.80q with the address %.200q", v.Subsection, v.Value)
				continue
			}
			remotes = append(remotes, v)
		case "remote.fetch":
			if goodWord(v.Subsection) && goodRefspec(v.Value) {
				remotes = append(remotes, v)
			}
		case "branch.remote":
			if validRef("refs/heads/"+v.Subsection) && (v.Value == "." || goodWord(v.Value)) {
				branches = append(branches, v)
			}
		case "branch.merge":
			if validRef("refs/heads/"+v.Subsection) && validRef(v.Value) {
				branches = append(branches, v)
			}
		default:
			c.note("not exported: the setting %.200q", v.Name())
		}
	}
	var b strings.Builder
	version := 0
	if c.hashLen == 32 {
		version = 1
	}
	fmt.Fprintf(&b, "[core]\n\trepositoryformatversion = %d\n\tfilemode = %s\n\tbare = %t\n", version, fileMode, c.bare)
	if !c.bare {
		b.WriteString("\tlogallrefupdates = true\n")
	}
	if version == 1 {
		b.WriteString("[extensions]\n\tobjectformat = sha256\n")
	}
	kept := map[string]bool{}
	for _, v := range remotes {
		kept[v.Subsection] = kept[v.Subsection] || v.Key == "url"
	}
	for _, v := range slices.Concat(remotes, branches) {
		if v.Section == "remote" && !kept[v.Subsection] || v.Section == "branch" && v.Key == "remote" && v.Value != "." && !kept[v.Value] {
			continue
		}
		b.WriteString(setting(v))
	}
	return c.write("config", []byte(b.String()))
}

// setting is v in git's syntax. Its subsection and value have passed one of the
// checks below, of which none lets a quote, a backslash or a control character
// through.
func setting(v gitconf.Var) string {
	return fmt.Sprintf("[%s \"%s\"]\n\t%s = \"%s\"\n", v.Section, v.Subsection, v.Key, v.Value)
}

// goodWord is a name that needs no quotes anywhere.
func goodWord(s string) bool {
	return s != "" && len(s) <= 200 && s[0] != '-' && s[0] != '.' && !strings.Contains(s, "..") && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") == ""
}

// goodURL is an address that git asks over the network: https, ssh or git, or
// host:path, and nothing that is a path, a helper's or an option.
func goodURL(s string) bool {
	if s == "" || len(s) > 1000 || strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'\\#;`$<>|&(){}*?!^", r)
	}) || strings.Contains(s, "::") {
		return false
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if ok {
		switch scheme {
		case "https", "http", "ssh", "git":
		default:
			return false
		}
	} else {
		var path string
		if rest, path, ok = strings.Cut(s, ":"); !ok || strings.Contains(rest, "/") || path == "" || path[0] == '-' {
			return false // a path on this machine
		}
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		if host[0] == '-' {
			return false
		}
		host = host[i+1:]
	}
	return host != "" && host[0] != '-'
}

func goodRefspec(s string) bool {
	from, to, ok := strings.Cut(strings.TrimPrefix(s, "+"), ":")
	one := func(r string) bool {
		return strings.Count(r, "*") <= 1 && validRef(strings.Replace(r, "*", "x", 1))
	}
	return one(from) && (!ok || one(to))
}

// validRef follows git-check-ref-format(1), below refs/.
func validRef(name string) bool {
	if !strings.HasPrefix(name, "refs/") || len(name) > 1000 || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == 0xfffd || strings.ContainsRune("~^:?*[\\\"", r)
	}) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

func (c *copier) isOID(s string) bool { return isHex(s, 2*c.hashLen) }

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// head copies HEAD, which names a branch or a commit.
func (c *copier) head() error {
	data, err := c.src.read("HEAD", smallFile)
	if err != nil {
		return fmt.Errorf("its HEAD: %w", err)
	}
	text, ok := c.refText(data, "refs/heads/")
	if !ok {
		return fmt.Errorf("its HEAD %.100q is not one that git writes", data)
	}
	return c.write("HEAD", []byte(text))
}

// refText is a ref's content in git's own form: an object or another ref.
func (c *copier) refText(data []byte, below string) (string, bool) {
	s := strings.TrimRight(string(data), "\n\r\t ")
	if c.isOID(s) {
		return s + "\n", true
	}
	target, ok := strings.CutPrefix(s, "ref:")
	target = strings.TrimLeft(target, " \t")
	return "ref: " + target + "\n", ok && strings.HasPrefix(target, below) && validRef(target)
}

// objects copies loose objects and packs. What git derives from them it makes
// again: indexes of several packs, bitmaps, commit graphs.
func (c *copier) objects() error {
	for _, dir := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(c.dst, dir), 0o755); err != nil { //nolint:gosec // as git makes it
			return err
		}
	}
	tops, err := c.src.list("objects")
	if err != nil {
		return err
	}
	for _, top := range tops {
		dir := "objects/" + top.Name()
		if top.Name() != "pack" && !isHex(top.Name(), 2) {
			continue
		}
		entries, err := c.src.list(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if isHex(top.Name(), 2) && isHex(e.Name(), 2*c.hashLen-2) || top.Name() == "pack" && c.packName(e.Name()) {
				if err := c.object(dir + "/" + e.Name()); err != nil {
					return err
				}
			}
		}
	}
	if _, err := c.src.read("objects/info/alternates", smallFile); err == nil {
		c.note("not exported: the way to another repository's objects (alternates)")
	}
	return nil
}

func (c *copier) packName(name string) bool {
	hash, ok := strings.CutPrefix(name, "pack-")
	if !ok {
		return false
	}
	hash, kind, _ := strings.Cut(hash, ".")
	return (kind == "pack" || kind == "idx") && c.isOID(hash)
}

func (c *copier) object(name string) error {
	f, err := c.src.file(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	return c.stream(name, f, 0o444)
}

// refs copies the loose ones.
func (c *copier) refs() error { return c.walkRefs("refs", 0) }

func (c *copier) walkRefs(dir string, depth int) error {
	if depth > refDepth {
		return fmt.Errorf("%.200q is too deep", dir)
	}
	entries, err := c.src.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if e.IsDir() {
			if err := c.walkRefs(name, depth+1); err != nil {
				return err
			}
			continue
		}
		if !validRef(name) || strings.HasPrefix(name, "refs/replace/") || strings.HasPrefix(name, "refs/worktree/") {
			c.note("not exported: %.200q", name)
			continue
		}
		data, err := c.src.read(name, smallFile)
		if err != nil {
			return err
		}
		text, ok := c.refText(data, "refs/")
		if !ok {
			c.note("not exported: %.200q, which is damaged", name)
			continue
		}
		if err := c.write(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// packedRefs copies the lines that name objects.
func (c *copier) packedRefs() error {
	data, err := c.src.read("packed-refs", bigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	type ref struct{ name, text string }
	var refs []ref
	peels := false // the last line was taken
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if peeled, ok := strings.CutPrefix(line, "^"); ok {
			if peels && c.isOID(peeled) {
				refs[len(refs)-1].text += "^" + peeled + "\n"
			}
			peels = false
			continue
		}
		oid, name, _ := strings.Cut(line, " ")
		if peels = c.isOID(oid) && validRef(name) && !strings.HasPrefix(name, "refs/replace/"); peels {
			refs = append(refs, ref{name, oid + " " + name + "\n"})
		} else if !strings.HasPrefix(line, "#") {
			c.note("not exported: %.200q of packed-refs", line)
		}
	}
	slices.SortStableFunc(refs, func(a, b ref) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("# pack-refs with: sorted \n")
	for i, r := range refs {
		if i == 0 || refs[i-1].name != r.name {
			b.WriteString(r.text)
		}
	}
	return c.write("packed-refs", []byte(b.String()))
}

// shallow copies where a shallow clone ends.
func (c *copier) shallow() error {
	data, err := c.src.read("shallow", bigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if !c.isOID(strings.TrimRight(line, "\n")) {
			return fmt.Errorf("its file shallow is damaged: %.100q", line)
		}
	}
	return c.write("shallow", data)
}

// logs copies reflogs, of which every line must have the form of one.
func (c *copier) logs() error {
	if err := c.log("HEAD"); err != nil {
		return err
	}
	return c.walkLogs("refs", 0)
}

func (c *copier) walkLogs(dir string, depth int) error {
	entries, err := c.src.list("logs/" + dir)
	if err != nil || depth > refDepth {
		return err
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if e.IsDir() {
			err = c.walkLogs(name, depth+1)
		} else if validRef(name) {
			err = c.log(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) log(ref string) error {
	data, err := c.src.read("logs/"+ref, bigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(line, " ", 3)
		if len(f) != 3 || !c.isOID(f[0]) || !c.isOID(f[1]) || strings.ContainsRune(line, 0) {
			c.note("not exported: the log of %.200q, which is damaged", ref)
			return nil
		}
	}
	return c.write("logs/"+ref, data)
}

// checkedIndex copies an index that is whole and safe; another one is made from
// HEAD later.
func (c *copier) checkedIndex() error {
	if c.bare {
		return nil
	}
	data, err := c.src.read("index", bigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	base, err := gitindex.Base(data, c.hashLen)
	if err == nil && base != nil {
		err = errors.New("it is split")
	}
	if err == nil {
		err = gitindex.Validate(data, c.hashLen)
	}
	if err != nil {
		c.note("not exported: the index (%.200s); what was staged in it is not any more", err)
		return nil
	}
	c.index = true
	return c.write("index", data)
}
