// Package state plays what the State Anchor promises on real podman and runsc:
// what the agent changes in the system directories is there in the next container
// of its domain, whatever ends in which order, and nowhere else.
package state

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// places runs a test on every runsc with the driver that is chosen, and on the
// current one with fuse-overlayfs.
func places(t *testing.T, test func(t *testing.T, h *harness.Harness)) {
	t.Helper()
	harness.Each(t, harness.Options{}, test)
	t.Run("fuse-overlayfs", func(t *testing.T) { test(t, harness.New(t, fuse())) })
}

func fuse() harness.Options {
	return harness.Options{Config: "[profiles.default]\nstate_driver = \"fuse-overlayfs\"\n"}
}

func TestChangesAreThereInTheNextContainer(t *testing.T) {
	places(t, func(t *testing.T, h *harness.Harness) {
		ws, other := h.Workspace(), h.Workspace()
		h.Lazaret(ws, harness.Busybox, "sh", "-c", "echo '#!/bin/sh' >/usr/local/bin/tool && echo 'echo works' >>/usr/local/bin/tool && chmod 4755 /usr/local/bin/tool && mkdir -p /opt/a /var/lib/b && rm /usr/bin/env && : >/root/y").OK(t)
		// A program that the image lacks is found before the container is made.
		if got := h.Lazaret(ws, harness.Busybox, "tool").OK(t); got != "works" {
			t.Errorf("got %q", got)
		}
		h.Lazaret(ws, harness.Busybox, "sh", "-c", "test -u /usr/local/bin/tool && test -d /opt/a && test -d /var/lib/b && ! test -L /usr/bin/env && ! test -e /root/y").OK(t)
		h.Lazaret(ws, harness.Busybox, "/usr/bin/env").Fails(t, 127, "/usr/bin/env")
		for _, ws := range []string{other, ""} {
			h.Lazaret(ws, harness.Busybox, "sh", "-c", "! test -e /usr/local/bin/tool && test -L /usr/bin/env").OK(t)
		}
		// The container's own layer keeps everything else, and podman sees that.
		h.Podman("create", "--name=box", "--runtime=lazaret", "-v", ws+":/workspace", harness.Busybox, "sh", "-c", "echo x >/root/own; echo x >/usr/share/kept").OK(t)
		h.Podman("start", "-a", "box").OK(t)
		if got := h.Podman("diff", "box").OK(t); !strings.Contains(got, "A /root/own") || strings.Contains(got, "/usr/share/kept") {
			t.Errorf("diff: %s", got)
		}
		h.Podman("start", "-a", "box").OK(t)
		h.Podman("rm", "box").OK(t)
	})
}

// domainRoot is the Domain Root of the default profile and a workspace.
func domainRoot(t *testing.T, h *harness.Harness, ws string) string {
	t.Helper()
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(h.DataRoot(), "domains", hash)
}

func TestWhatAnEarlierSessionLeft(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	check := `
		test "$(command -v lazaret-escalate)" = /run/lazaret/sbin/lazaret-escalate
		cmp /run/lazaret/escalate "$(command -v lazaret-escalate)"
		test ! -e /workspace/stolen
		test -f /etc/hosts && grep -q localhost /etc/hosts
		test "$(cat /etc/hostname)" = "$(hostname)"
		test -s /etc/resolv.conf
	`
	for name, evil := range map[string]string{
		"a client of its own":        `cp /bin/true /usr/bin/lazaret-escalate; mkdir -p /usr/local/sbin; cp /bin/true /usr/local/sbin/lazaret-escalate`,
		"a directory as the client":  `mv /usr/local/bin /usr/local/old; mkdir -p /usr/local/bin/lazaret-escalate/x`,
		"a link as the client":       `mv /usr/local/bin /usr/local/old; mkdir /usr/local/bin; ln -s /workspace/stolen /usr/local/bin/lazaret-escalate`,
		"a link as its directory":    `mv /usr/local/bin /usr/local/old; ln -s /workspace /usr/local/bin`,
		"a link into another path":   `mv /usr/local/bin /usr/local/old; mkdir -p /opt/evil; ln -s /opt/evil /usr/local/bin; cp /bin/true /opt/evil/lazaret-escalate`,
		"a file as its directory":    `mv /usr/local/bin /usr/local/old; echo x >/usr/local/bin`,
		"no directory":               `mv /usr/local /usr/old`,
		"directories as etc's files": `mkdir -p /etc/hosts/x /etc/resolv.conf /etc/hostname`,
		"links as etc's files":       `rm -f /etc/hosts; ln -s /workspace/stolen /etc/hosts; ln -s /opt /etc/resolv.conf; ln -s nowhere /etc/hostname`,
		"nothing readable":           `chmod 0 /usr /etc /opt /var/lib`,
	} {
		t.Run(name, func(t *testing.T) {
			ws := h.Workspace()
			h.Lazaret(ws, "--no-hosts", "--dns=none", "--uts=host", harness.Busybox, "sh", "-c", evil+"; true").OK(t)
			r := h.Lazaret(ws, harness.Busybox, "sh", "-ec", check)
			r.OK(t)
			if r.Stderr != "" {
				t.Errorf("stderr: %s", r.Stderr)
			}
			if _, err := os.Lstat(filepath.Join(ws, "stolen")); err == nil {
				t.Error("a file was made on the host")
			}
		})
	}
}

func TestMountsInKeptDirectories(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	h.Sh(h.Dir+"/home", "mkdir data; echo host >data/f").OK(t)
	data := h.Home + "/data"
	for range 2 {
		if got := h.Lazaret(ws, "-v", data+":/usr/local/deep/data", "-v", data+"/f:/etc/deep/f", "--tmpfs", "/opt/t", "-v", data+":/var", harness.Busybox,
			"sh", "-ec", "cat /usr/local/deep/data/f /etc/deep/f; : >/opt/t/x; test -f /var/f; echo x >/usr/local/deep/y").OK(t); got != "host\nhost" {
			t.Errorf("got %q", got)
		}
	}
	h.Lazaret(ws, harness.Busybox, "sh", "-ec", "test -z \"$(ls -A /usr/local/deep/data)\"; test ! -e /opt/t/x; rmdir /usr/local/deep/data; ln -s /workspace /usr/local/deep/data; ln -s data /usr/local/deep/in; rm /etc/deep/f; mkdir /etc/deep/f").OK(t)
	h.Lazaret(ws, "-v", data+"/f:/etc/deep/f", harness.Busybox, "true").Fails(t, 126, "/etc/deep/f", "an earlier session left")
	h.Lazaret(ws, "-v", data+":/usr/local/deep/data/stolen", harness.Busybox, "true").Fails(t, 126, "/usr/local/deep/data/stolen", "leads it to /workspace/stolen")
	h.Lazaret(ws, "-v", data+":/usr/local/deep/in/stolen", harness.Busybox, "true").Fails(t, 126, "leads it to /workspace/stolen")
	if _, err := os.Lstat(filepath.Join(ws, "stolen")); err == nil {
		t.Error("a directory was made on the host")
	}
}

// Containers that overlap share one mount, which outlives the first and its
// layers.
func TestTwoContainersInBothOrders(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"overlay", "vfs"} {
		t.Run(storage, func(t *testing.T) {
			h := harness.New(t, harness.Options{})
			if storage == "vfs" {
				h.WriteFile(filepath.Join(h.Home, ".config/containers/storage.conf"), fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", h.Home+"/vfs", h.Runtime+"/vfs"))
				h.Podman("import", "-q", "/var/cache/lazaret-test/busybox-1.tar", harness.Busybox).OK(t)
			}
			ws := h.Workspace()
			for i, first := range []string{"a", "b"} {
				second := map[string]string{"a": "b", "b": "a"}[first]
				h.Detached(ws, "a", harness.Busybox, "sleep", "1000")
				h.Podman("exec", "a", "sh", "-c", fmt.Sprintf("echo a >/usr/local/a%d", i)).OK(t)
				h.Detached(ws, "b", harness.Busybox, "sleep", "1000")
				h.Podman("exec", "b", "sh", "-c", fmt.Sprintf("cat /usr/local/a%d; echo b >/opt/b%d", i, i)).OK(t)
				h.Podman("exec", "a", "cat", fmt.Sprintf("/opt/b%d", i)).OK(t)
				h.Podman("rm", "-f", "-t", "0", first).OK(t)
				h.Podman("exec", second, "sh", "-ec", fmt.Sprintf("ls -lR /usr /etc /var/lib /opt >/dev/null; grep -q agent /etc/passwd; echo later >/usr/lib/later%d; cat /opt/b%d", i, i)).OK(t)
				h.Podman("rm", "-f", "-t", "0", second).OK(t)
				h.DomainEnds("default", ws)
			}
			h.Lazaret(ws, harness.Busybox, "sh", "-ec", "cat /usr/local/a0 /usr/local/a1 /opt/b0 /opt/b1 /usr/lib/later0 /usr/lib/later1").OK(t)
		})
	}
}

// commit makes an image of another one and a script, without Lazaret.
func commit(t *testing.T, h *harness.Harness, from, to, script string) {
	t.Helper()
	h.Podman("run", "--name=build", "--runtime=runc", "--network=none", from, "sh", "-ec", script).OK(t)
	h.Podman("commit", "-q", "build", to).OK(t)
	h.Podman("rm", "build").OK(t)
}

func TestImagesOfOneDomain(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	release := func(v string) string {
		return "printf 'ID=test\\nVERSION_ID=" + v + "\\n' >/etc/os-release; mkdir -p /var/lib/dpkg; echo " + v + " >/usr/lib/version"
	}
	commit(t, h, harness.Busybox, "localhost/one", release("1")+"; echo 1 >/var/lib/dpkg/status")
	commit(t, h, "localhost/one", "localhost/newer", "echo newer >/usr/lib/version; rm /usr/bin/env; echo 2 >/var/lib/dpkg/status")
	commit(t, h, harness.Busybox, "localhost/two", release("2"))
	run := func(image, script string) harness.Result { return h.Lazaret(ws, image, "sh", "-ec", script) }
	// Engines may lose what a runtime writes to stderr before they attach.
	told := func() string {
		lines := strings.Split(h.Run("grep", `"state mounted"`, domainRoot(t, h, ws)+"/coordinator.log").OK(t), "\n")
		_, notes, _ := strings.Cut(lines[len(lines)-1], `"notes":`)
		return notes
	}

	run("localhost/one", "echo kept >/usr/lib/kept; echo mine >/var/lib/dpkg/status").OK(t)
	h.Detached(ws, "box", "localhost/one", "sleep", "1000")
	for _, image := range []string{"localhost/newer", "localhost/two"} {
		run(image, "true").Fails(t, 126, "localhost/one", "one image at a time", "end it first")
	}
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	h.DomainEnds("default", ws)

	r := run("localhost/newer", "cat /usr/lib/kept /usr/lib/version /var/lib/dpkg/status; test ! -L /usr/bin/env")
	if n := told(); r.OK(t) != "kept\nnewer\nmine" || !strings.Contains(n, "the image is now localhost/newer") || !strings.Contains(n, "lazaret state rebase") {
		t.Errorf("newer: %q, %q", r.Stdout, n)
	}
	if r := run("localhost/newer", "true"); r.Code != 0 || told() != "null}" {
		t.Errorf("told again: %d, %s", r.Code, told())
	}
	r = run("localhost/two", "cat /usr/lib/version; test ! -e /usr/lib/kept; echo two >/usr/lib/kept")
	if n := told(); r.OK(t) != "2" || !strings.Contains(n, "lazaret state rebase") {
		t.Errorf("another release: %q, %q", r.Stdout, n)
	}
	if got := run("localhost/two", "cat /usr/lib/kept").OK(t); got != "two" {
		t.Errorf("another release again: %q", got)
	}
	if got := run("localhost/newer", "cat /usr/lib/kept").OK(t); got != "kept" {
		t.Errorf("the first release again: %q", got)
	}
}

func TestPersist(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[profiles.default]\npersist = [\"/root/.tool\", \"/home/agent/.tool\", \"/usr/share/tool\"]\n[profiles.other]\npersist = [\"/root/.tool\"]\n"})
	ws, second := h.Workspace(), h.Workspace()
	h.Lazaret(ws, harness.Busybox, "sh", "-ec", "test \"$(stat -c %a:%u /root/.tool)\" = 700:0; echo login >/root/.tool/login; echo x >/usr/share/tool/x; ln -s /etc/passwd /root/.tool/link").OK(t)
	h.Lazaret(second, harness.Busybox, "sh", "-ec", "test \"$(cat /root/.tool/login)\" = login; cat /usr/share/tool/x").OK(t)
	h.Lazaret(ws, "--user=agent", harness.Busybox, "sh", "-ec", "test ! -r /root/.tool/login").OK(t)
	h.Lazaret(second, "-e", "LAZARET_PROFILE=other", harness.Busybox, "sh", "-ec", "test ! -e /root/.tool/login").OK(t)
	h.Lazaret("", harness.Busybox, "sh", "-ec", "test ! -e /root/.tool").OK(t)
	dir := filepath.Join(h.DataRoot(), "default/root_.tool")
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode().Perm() != 0o700 || fi.Sys().(*syscall.Stat_t).Uid != uint32(h.User.UID) {
		t.Errorf("%s: %v, %v", dir, fi, err)
	}
	// Who runs as another user owns what is made for him.
	h.Sh(h.Home, "podman unshare rm -rf "+h.DataRoot()+"/default").OK(t)
	h.Lazaret(ws, "--user=agent", harness.Busybox, "sh", "-ec", "echo login >/home/agent/.tool/login; test \"$(stat -c %a:%u /home/agent/.tool)\" = 700:1000").OK(t)
	// A mount of the user's is his.
	h.Lazaret(ws, "-v", h.Home+":/root/.tool", harness.Busybox, "sh", "-ec", "test -e /root/.tool/.config").OK(t)
}

// The state of a killed coordinator is put right by the next start, and what was
// written before is there.
func TestKilled(t *testing.T) {
	places(t, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Lazaret(ws, harness.Busybox, "sh", "-c", "echo earlier >/usr/lib/earlier").OK(t)
		h.Detached(ws, "box", harness.Busybox, "sh", "-c", "i=0; while :; do mkdir -p /usr/lib/many/$i; cp /bin/busybox /usr/lib/many/$i/f; i=$((i+1)); done")
		h.Eventually("it writes", 20*time.Second, func() bool {
			return h.Podman("exec", "box", "test", "-e", "/usr/lib/many/20/f").Code == 0
		})
		d := h.Domain("default", ws)
		if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "end container")
		h.Podman("kill", "box").OK(t)
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		h.Lazaret(ws, harness.Busybox, "sh", "-ec", "cat /usr/lib/earlier; cmp /bin/busybox /usr/lib/many/10/f; rm -r /usr/lib/many; mkdir /usr/lib/many; test -z \"$(ls /usr/lib/many)\"").OK(t)
		if got := h.Lazaret(ws, harness.Busybox, "ls", "/usr/lib").OK(t); got != "earlier\nmany" {
			t.Errorf("got %q", got)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[profiles.none]\nstate_paths = []\n[profiles.fuse]\nstate_driver = \"fuse-overlayfs\"\n"})
	ws := h.Workspace()
	h.Lazaret(ws, "-e", "LAZARET_PROFILE=none", harness.Busybox, "sh", "-c", ": >/usr/lib/x").OK(t)
	h.Lazaret(ws, "-e", "LAZARET_PROFILE=none", harness.Busybox, "test", "-e", "/usr/lib/x").Exit(t, 1)
	h.Lazaret(ws, "-e", "LAZARET_PROFILE=fuse", harness.Busybox, "sh", "-c", ": >/usr/lib/x").OK(t)
	h.Config("[runtime]\nsandbox = \"" + h.Sandbox + "\"\n[profiles.fuse]\nstate_driver = \"overlay\"\n")
	h.Lazaret(ws, "-e", "LAZARET_PROFILE=fuse", harness.Busybox, "true").Fails(t, 126, `were made with "fuse-overlayfs"`, "lazaret state reset")
	h.Config("[runtime]\nsandbox = \"" + h.Sandbox + "\"\n[profiles.fuse]\nstate_driver = \"auto\"\n")
	h.Lazaret(ws, "-e", "LAZARET_PROFILE=fuse", harness.Busybox, "test", "-e", "/usr/lib/x").OK(t)
	// A user of another kind sees none of it, and leaves none.
	h.Lazaret(ws, "--userns=keep-id", harness.Busybox, "sh", "-ec", "test ! -e /usr/lib/y; id").OK(t)
}

// Every character that options of mounts, engines and configurations give a meaning,
// in the paths of the workspace and of the Domain Root, and in a state path.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	config := func(name, data, driver string) {
		h.Config(fmt.Sprintf("[general]\ndata_root = '%s'\n[runtime]\nsandbox = %q\n[profiles.default]\nstate_driver = %q\nstate_paths = ['/usr', '/opt/%s']\n", data, h.Sandbox, driver, name))
	}
	place := func(name string) (ws string) {
		ws = filepath.Join(h.Home, name)
		h.Sh(h.Home, `mkdir -p "$1" "$1.data"`, ws).OK(t)
		h.Track(ws)
		return ws
	}
	for _, name := range []string{"a b", "a,b", "a:b", `a\b`, "a%b", "ünï☃", `a"b$(c)`, strings.Repeat("x", 200)} {
		ws := place(name)
		config(name, ws+".data", "auto")
		in := []string{"-v", ws + ":/workspace"}
		if strings.Contains(name, ":") { // which podman's -v takes for an end
			in = []string{"--annotation", "dev.lazaret.workspace=" + ws}
		}
		start := func(script string) harness.Result {
			return h.Podman(slices.Concat([]string{"run", "--rm", "--runtime=lazaret"}, in, []string{harness.Busybox, "sh", "-ec", script, "sh", name})...)
		}
		if strings.ContainsAny(name, ":,") {
			start("true").Fails(t, 126, `profiles.default.state_paths[1]": "/opt/`+name+`": ":" and "," cannot be in a path of the sandbox`)
			config("x", ws+".data", "auto")
			name = "x"
		}
		run := func(script string) string { return start(script).OK(t) }
		run(`echo x >/usr/lib/x; echo y >"/opt/$1/y"; echo z >/opt/z`)
		if got := run(`cat /usr/lib/x "/opt/$1/y"; test ! -e /opt/z`); got != "x\ny" {
			t.Errorf("%s: %q", name, got)
		}
	}
	config("x", h.Home+"/a:b.data", "fuse-overlayfs")
	h.Lazaret(h.Home+"/a b", harness.Busybox, "true").Fails(t, 126, "has a colon in it", "fuse-overlayfs", "choose another data_root")
	name := `a b\c%d"ü`
	ws := place(name + ",e")
	config(name, ws+".data", "fuse-overlayfs")
	for range 2 {
		h.Lazaret(ws, harness.Busybox, "sh", "-ec", `echo x >>"/opt/$1/x"`, "sh", name).OK(t)
	}
	if got := h.Lazaret(ws, harness.Busybox, "cat", "/opt/"+name+"/x").OK(t); got != "x\nx" {
		t.Errorf("fuse-overlayfs: %q", got)
	}
	if out := h.Run("lazaret", "state", "diff", "-w", ws).OK(t); !strings.Contains(out, "/x") {
		t.Errorf("diff: %s", out)
	}
	h.Run("lazaret", "state", "reset", "--yes", "-w", ws).OK(t)
}

// A disk that fills up fails the agent's writes, and nothing that was kept before.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws, data := h.Workspace(), h.Home+"/small"
	h.Config(fmt.Sprintf("[general]\ndata_root = %q\n[runtime]\nsandbox = %q\n", data, h.Sandbox))
	h.Sh(h.Home, `mkdir small && podman unshare mount -t tmpfs -o size=4m tmpfs small`).OK(t)
	t.Cleanup(func() { h.Sh(h.Home, `podman unshare umount small`).OK(t) })
	run := func(script string) harness.Result { return h.Lazaret(ws, harness.Busybox, "sh", "-ec", script) }
	run(`echo earlier >/usr/lib/earlier; rm /usr/bin/env`).OK(t)
	if r := run(`cat /dev/zero >/opt/zero || cp -r /bin /usr/lib/more || echo full`); r.OK(t) != "full" || !strings.Contains(r.Stderr, "No space left on device") {
		t.Errorf("writing on: %q, %q", r.Stdout, r.Stderr)
	}
	full := h.Sh(h.Home, `podman unshare sh -c 'cp /bin/busybox small/more 2>/dev/null; df small | tail -n1'`)
	t.Logf("the disk: %s", full.Stdout)
	if r := run("cat /usr/lib/earlier; test ! -L /usr/bin/env"); r.Code != 0 && !strings.Contains(r.Stderr, "no space left on device") {
		t.Errorf("on a full disk: exit %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	h.Sh(h.Home, `podman unshare rm -f small/more`).OK(t)
	run("rm -rf /opt/zero /usr/lib/more").OK(t)
	if got := run("cat /usr/lib/earlier; test ! -L /usr/bin/env; echo x >/usr/lib/x; ls /opt").OK(t); got != "earlier" {
		t.Errorf("with room again: %q", got)
	}
}

func TestRootful(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Rootful: true, Config: "[profiles.default]\npersist = [\"/root/.tool\"]\n[profiles.fuse]\nstate_driver = \"fuse-overlayfs\"\n"})
	ws := h.Workspace()
	run := func(script string, args ...string) harness.Result {
		return h.Lazaret(ws, slices.Concat([]string{"--network=none"}, args, []string{harness.Busybox, "sh", "-ec", script})...)
	}
	run("echo kept >/usr/lib/kept; chown 1000:1000 /usr/lib/kept; rm /usr/bin/env; echo login >/root/.tool/login").OK(t)
	if got := run("stat -c %u /usr/lib/kept; test ! -L /usr/bin/env; cat /root/.tool/login").OK(t); got != "1000\nlogin" {
		t.Errorf("got %q", got)
	}
	if data := h.Run("cat", domainRoot(t, h, ws)+"/state.json").OK(t); !strings.Contains(data, `"overlay"`) {
		t.Errorf("record: %s", data)
	}
	// Containers share one mount, which the first one's end leaves.
	h.Detached(ws, "a", "--network=none", harness.Busybox, "sleep", "1000")
	h.Detached(ws, "b", "--network=none", harness.Busybox, "sleep", "1000")
	h.Podman("exec", "a", "sh", "-c", "echo a >/opt/a").OK(t)
	h.Podman("rm", "-f", "-t", "0", "a").OK(t)
	h.Podman("exec", "b", "sh", "-ec", "cat /opt/a /usr/lib/kept; echo b >/etc/b").OK(t)
	h.Lazaret(ws, "--network=none", harness.Debian, "true").Fails(t, 126, "one image at a time")
	h.Podman("rm", "-f", "-t", "0", "b").OK(t)
	h.DomainEnds("default", ws)
	run("cat /opt/a /etc/b").OK(t)
	for range 2 {
		run("echo x >>/usr/lib/x; rm -f /usr/bin/env; test ! -e /usr/lib/kept", "-e", "LAZARET_PROFILE=fuse").OK(t)
	}
	run("test $(wc -l </usr/lib/x) = 2; test ! -L /usr/bin/env", "-e", "LAZARET_PROFILE=fuse").OK(t)
}
