package state

import (
	"os"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// manifest changes a system as programs do, or (with "tell") prints all of it: one
// line a file, with type, mode, owner, links, size, content and attributes.
const manifest = `
import binascii, os, stat, subprocess, sys
def content(name, dirfd, size): # in few calls: a sandbox's cost much on a busy machine
    fd, crc = os.open(name, os.O_RDONLY, dir_fd=dirfd), 0
    while size > 0:
        data = os.read(fd, 1 << 20)
        if not data:
            return 'short'
        size, crc = size - len(data), binascii.crc32(data, crc)
    os.close(fd)
    return '%08x' % crc
def tell():
    inodes = {}
    for top in ['/usr/share', '/usr/bin', '/usr/lib/apt', '/usr/local', '/etc', '/var/lib', '/opt']:
        for path, dirs, files, dirfd in os.fwalk(top):
            dirs.sort()
            if path == '/etc':
                files = [f for f in files if f not in ('hosts', 'hostname', 'resolv.conf')]
            for name in ['.'] + sorted(files) + dirs:
                p = os.path.join(path, name)
                st = os.lstat(name, dir_fd=dirfd)
                what = ''
                if stat.S_ISREG(st.st_mode):
                    what = '%d %s' % (st.st_size, content(name, dirfd, st.st_size))
                elif stat.S_ISLNK(st.st_mode):
                    what = os.readlink(name, dir_fd=dirfd)
                elif stat.S_ISDIR(st.st_mode) and name != '.':
                    continue # comes as itself
                links = 0 if stat.S_ISDIR(st.st_mode) else st.st_nlink
                twin = inodes.setdefault((st.st_dev, st.st_ino), p) if links > 1 else ''
                try:
                    attributes = '/many/' in path or [(a, os.getxattr(p, a, follow_symlinks=False)) for a in sorted(os.listxattr(p, follow_symlinks=False))]
                except OSError as e:
                    attributes = e.errno
                print(p, oct(st.st_mode), st.st_uid, st.st_gid, links, twin, int(st.st_mtime), what, attributes)
def write(p, data, dirfd=None):
    fd = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=dirfd)
    if data and os.write(fd, data) != len(data):
        raise OSError('short')
    os.close(fd)
def change(n):
    for first in range(0, n, 500):
        d = '/usr/share/many/%d' % (first // 500)
        os.makedirs(d)
        fd, those = os.open(d, os.O_RDONLY | os.O_DIRECTORY), range(first, min(n, first + 500))
        for i in those:
            write('%d' % i, b'%d' % i * (i % 7), fd)
        for i in those[::3]:
            os.remove('%d' % i, dir_fd=fd)
        os.close(fd)
    os.rename('/usr/share/many/0', '/usr/share/renamed')
    subprocess.run(['mv', '/usr/lib/apt', '/usr/lib/apt.moved'], check=True)
    subprocess.run(['mv', '/usr/lib/apt.moved', '/usr/lib/apt'], check=True)
    subprocess.run(['mv', '/usr/share/perl5', '/usr/share/perl-moved'], check=True)
    subprocess.run(['rm', '-r', '/usr/share/vim', '/etc/skel'], check=True)
    os.makedirs('/usr/share/vim/fresh')
    write('/etc/skel', b'a file where a directory was')
    os.makedirs('/opt/links')
    write('/opt/links/a', b'linked')
    for n in 'bcd':
        os.link('/opt/links/a', '/opt/links/' + n)
    os.symlink('a', '/opt/links/s'); os.symlink('/nowhere', '/opt/links/dangling')
    os.chmod('/opt/links/a', 0o4755); os.chmod('/usr/bin/tmux', 0o2755); os.mkdir('/opt/sticky'); os.chmod('/opt/sticky', 0o1777)
    os.chown('/opt/sticky', 1000, 1001); os.chown('/usr/bin/git', 12, 34)
    os.setxattr('/opt/links/a', 'user.note', b'\x00binary'); os.setxattr('/etc/passwd', 'user.of-the-image', b'x')
    with open('/var/lib/sparse', 'wb') as f:
        f.seek(1 << 28); f.write(b'end')
    with open('/etc/passwd', 'ab') as f:
        f.write(b'agent:x:1000:1000::/:/bin/sh\n')
    os.utime('/opt/links/a', (1000000000, 1000000000))
if sys.argv[1] == 'change':
    change(int(sys.argv[2]))
tell()
`

// STATE_FILES=100000 (make tree) is the long run.
func TestAllOfATreeComesBack(t *testing.T) {
	n, limit := "1500", time.Duration(0)
	if v := os.Getenv("STATE_FILES"); v != "" {
		n, limit = v, 60*time.Minute
	}
	t.Parallel()
	for name, opts := range map[string]harness.Options{"overlay": {}, "fuse-overlayfs": fuse()} {
		t.Run(name, func(t *testing.T) {
			opts.CommandTime = limit
			h := harness.New(t, opts)
			ws := h.Workspace()
			r := h.Lazaret(ws, harness.Debian, "python3", "-c", manifest, "change", n)
			made := r.OK(t)
			next := h.Lazaret(ws, harness.Debian, "python3", "-c", manifest, "tell")
			t.Logf("%s files: changed and listed in %s, listed in the next container in %s", n, r.Took.Round(time.Second), next.Took.Round(time.Second))
			if again := next.OK(t); again != made {
				h.WriteFile(h.Dir+"/made", made)
				h.WriteFile(h.Dir+"/again", again)
				t.Errorf("the tree is another:\n%.3000s", h.Run("diff", h.Dir+"/made", h.Dir+"/again").Stdout)
			}
			if got := h.Sh(h.Home, `podman unshare du -s "$1/var_lib_changes" | cut -f1`, domainRoot(t, h, ws)).OK(t); len(got) > 5 {
				t.Errorf("a sparse file takes %s kilobytes", got)
			}
		})
	}
}
