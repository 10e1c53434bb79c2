package state

import (
	"os"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// forge tries to write the overlays' own language: marks of deleted files, of
// directories that hide what is below, of names and content taken from elsewhere.
const forge = `
import os, stat
names = ['user.overlay.opaque', 'user.overlay.redirect', 'user.overlay.metacopy', 'user.overlay.whiteout', 'user.overlay.overlay.opaque',
    'user.fuseoverlayfs.opaque', 'user.fuseoverlayfs.redirect', 'user.containers.override_stat', 'trusted.overlay.opaque', 'trusted.overlay.redirect']
os.makedirs('/usr/share/forged', exist_ok=True)
open('/usr/share/forged/f', 'w').close()
os.utime('/usr/share/perl5'); os.utime('/etc/passwd')
for path in ['/usr/share/perl5', '/usr/share/forged', '/usr/share/forged/f', '/etc/passwd', '/usr', '/etc']:
    for name in names:
        for value in [b'y', b'x', b'/../../../../etc', b'0:0:0104755']:
            try:
                os.setxattr(path, name, value, follow_symlinks=False)
            except OSError:
                pass
for path in ['/usr/share/forged/null', '/usr/share/forged/kmem']:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(0, 0) if 'null' in path else os.makedev(1, 2))
    except OSError:
        pass
for name in ['/usr/bin/.wh.git', '/usr/share/.wh..wh..opq', '/etc/.wh.passwd']:
    try:
        open(name, 'w').close()
    except OSError:
        pass
with open('/usr/share/forged/huge', 'wb') as f:
    f.truncate(1 << 42)
with open('/usr/share/forged/suid', 'wb') as f:
    f.write(b'#!/bin/sh\n')
os.chmod('/usr/share/forged/suid', 0o6755)
`

// What an agent writes into the file systems under the overlays is never taken for
// the overlays' own: the next container has the image's files, nothing of other
// places, no device, and nobody else on the host reaches what is setuid.
func TestForgedMarks(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]harness.Options{"overlay": {}, "fuse-overlayfs": fuse()} {
		t.Run(name, func(t *testing.T) {
			h := harness.New(t, opts)
			ws := h.Workspace()
			h.Lazaret(ws, harness.Debian, "python3", "-c", forge).OK(t)
			h.Lazaret(ws, harness.Debian, "bash", "-ec", `
				test -x /usr/bin/git; grep -q ^root: /etc/passwd; test -n "$(ls /usr/share/perl5)"
				test -f /usr/share/forged/f; test ! -s /usr/share/forged/f; test ! -e /usr/share/forged/passwd
				test ! -c /usr/share/forged/null; test ! -c /usr/share/forged/kmem
				test "$(stat -c %s /usr/share/forged/huge)" = 4398046511104; test "$(stat -c %u:%a /usr/share/forged/suid)" = 0:6755
			`).OK(t)
			root := domainRoot(t, h, ws)
			if fi, err := os.Lstat(root); err != nil || fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("others reach setuid files in %s: %v, %v", root, fi.Mode(), err)
			}
			// 0:0 is no device: the overlays' mark of what is deleted.
			if got := h.Sh(h.Home, `podman unshare find "$1" \( -type c -o -type b \) -exec stat -c '%t:%T %n' {} + | sed '/^0:0 /d'`, root+"/usr_changes").OK(t); got != "" {
				t.Errorf("devices: %s", got)
			}
			h.Run("lazaret", "state", "snapshot", "-w", ws, "s").OK(t) // with its holes
			if got := h.Sh(h.Home, `podman unshare du -sm "$1" | cut -f1`, root+"/snapshots").OK(t); len(got) > 3 {
				t.Errorf("the snapshot takes %s MB", got)
			}
		})
	}
}

// A container of before is started again after its agent has put a link in the place
// of a directory above a kept one: nothing of it comes to lie in the workspace.
func TestALinkAboveAKeptDirectory(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	before := h.Sh(ws, "find . -not -path './.git/*' | sort").OK(t)
	h.Podman("create", "--name=box", "--runtime=lazaret", "-v", ws+":/workspace", harness.Busybox, "sh", "-c", "test -L /var || { mv /var /var.old && ln -s /workspace /var; }; : >/var/lib/x").OK(t)
	for range 2 {
		h.Podman("start", "-a", "box") // refused, or without effect
	}
	if after := h.Sh(ws, "find . -not -path './.git/*' | sort").OK(t); after != before {
		t.Errorf("the workspace was\n%s\nand is\n%s", before, after)
	}
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	h.Lazaret(ws, harness.Busybox, "true").OK(t)
}
