package oci

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// connections counts the control socket's connections that the coordinator has.
func (w *world) connections(ws string) int {
	w.t.Helper()
	n := 0
	table := w.Run("cat", "/proc/net/unix").OK(w.t)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		// Num RefCount Protocol Flags Type St Inode Path; 03 is connected.
		if len(f) == 8 && f[7] == harness.ControlSocket(w.hashOf(ws)) && f[5] == "03" {
			n++
		}
	}
	return n
}

// Nothing of Lazaret's reaches the sandbox: no descriptor, no variable, no socket.
func TestNothingLeaksIntoTheSandbox(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		ws, id := w.Workspace(), w.id("c")
		b, bare := w.bundle("sleep 100", workspace(ws)), w.bundle("sleep 100", workspace(ws))
		w.create(b, id, "--network=none").OK(t)
		w.rt("start", id).OK(t)
		pid := w.state(id).Pid

		if n := w.connections(ws); n != 0 {
			t.Errorf("%d connections to the coordinator are open, none is a session", n)
		}
		for _, line := range w.sandboxDescriptors(pid) {
			// What is mounted in the sandbox, it may hold.
			inside := strings.HasPrefix(line, "/root/run/lazaret") || line == "/root/usr/local/bin/lazaret-escalate"
			if strings.Contains(line, "lazaret") && !inside && line != w.output(b) {
				t.Errorf("the sandbox process holds %s", line)
			}
		}
		env := strings.Split(w.asRoot("cat", fmt.Sprintf("/proc/%d/environ", pid)), "\x00")
		other := w.id("d")
		w.engine(append([]string{"sh", "-c", `exec "$@" </dev/null >/dev/null 2>&1`, "sh"}, w.bareArgv("--network=none", "create", "--bundle", bare, other)...)...).OK(t)
		barePID := strings.TrimSpace(w.engine("sh", "-c", `"$@" | grep '"pid"' | tr -dc 0-9`, "sh", w.Sandbox, "--root", w.root+"b", "state", other).OK(t))
		n, err := strconv.Atoi(barePID)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Split(w.asRoot("cat", fmt.Sprintf("/proc/%d/environ", n)), "\x00"); !slices.Equal(env, want) {
			t.Errorf("the sandbox process has the environment %q, bare runsc's %q", env, want)
		}
		w.bare("delete", "--force", other).OK(t)

		// What the sandbox sees of Lazaret.
		sh := func(script string) harness.Result { return w.rt("exec", id, "sh", "-c", script) }
		if got := sh("ls -a /run/lazaret").OK(t); strings.TrimPrefix(got, ".\n..\n") != "bin\ncerts\nescalate\nescalate.sock\ngitconfig\ngitconfig.author\ngitconfig.guarded\nguard\nsbin\nsocket\nterminfo" {
			t.Errorf("/run/lazaret holds %q", got)
		}
		if got := sh("cd /run/lazaret && ls bin guard sbin").OK(t); got != "bin:\ngit\n\nguard:\nrefusals\n\nsbin:\nlazaret-escalate" {
			t.Errorf("/run/lazaret holds %q", got)
		}
		sh("cmp /run/lazaret/escalate /usr/local/bin/lazaret-escalate").OK(t) // a login shell's PATH
		for _, try := range []string{
			"echo x >/run/lazaret/x", "echo x >>/run/lazaret/gitconfig", "rm /run/lazaret/gitconfig.guarded", "rm /run/lazaret/escalate", "mv /run/lazaret/escalate /tmp/", "echo x >/run/lazaret/escalate",
			"echo x >/usr/local/bin/lazaret-escalate", "rm /usr/local/bin/lazaret-escalate", "mkdir /run/lazaret/terminfo/z",
			"rm /run/lazaret/socket/escalate.sock", "rm /run/lazaret/escalate.sock", "echo x >/run/lazaret/certs/client.pem", "touch /run/lazaret/certs/x", "touch /run/lazaret/socket/x",
		} {
			if r := sh(try); r.Code == 0 {
				t.Errorf("the sandbox may %s", try)
			}
		}
		// Every socket of the file tree.
		if got := sh("find / -type s 2>/dev/null").Stdout; got != "/run/lazaret/socket/escalate.sock\n" {
			t.Errorf("sockets in the sandbox: %s", got)
		}
		if got := sh("env").OK(t); strings.Contains(got, w.Home) || strings.Contains(got, "XDG_") || !strings.Contains(got, "LAZARET_SESSION_ID=") {
			t.Errorf("environment of an exec: %s", got)
		}
		w.rt("delete", "--force", id).OK(t)
		w.nothingRuns()
	})
}

func (w *world) bareArgv(args ...string) []string {
	argv := []string{w.Sandbox, "--root", w.root + "b"}
	if !w.rootful {
		argv = append(argv, "--ignore-cgroups")
	}
	return append(argv, args...)
}

// asRoot runs a command that must see a sandbox's process, which belongs to a
// sub-uid in a user namespace of its own.
func (w *world) asRoot(args ...string) string {
	w.t.Helper()
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	out, err := exec.CommandContext(w.t.Context(), args[0], args[1:]...).Output()
	if err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
	return string(out)
}

// sandboxDescriptors lists what a process holds, one a line.
func (w *world) sandboxDescriptors(pid int) []string {
	w.t.Helper()
	return strings.Split(strings.TrimSpace(w.asRoot("sh", "-c", fmt.Sprintf("for f in /proc/%d/fd/*; do readlink $f; done", pid))), "\n")
}

// A session is the exec's own connection, for as long as the exec runs.
func TestAnExecIsOneSession(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		ws, id := w.Workspace(), w.id("c")
		b := w.bundle("sleep 100", workspace(ws))
		w.create(b, id, "--network=none").OK(t)
		w.rt("start", id).OK(t)
		process := filepath.Join(w.Dir, "process.json")
		w.WriteFile(process, `{"args":["sh","-c","env >/workspace/env; sleep 100"],"cwd":"/","env":["PATH=/bin"],"user":{"uid":0,"gid":0}}`)
		pidFile := filepath.Join(w.Dir, "exec.pid")
		w.engine("sh", "-c", `exec "$@" </dev/null >/dev/null 2>&1`, "sh", w.program("lazaret-runtime"), "--root", w.root,
			"exec", "--process", process, "--pid-file", pidFile, "--detach", id).OK(t)
		w.Eventually("the exec runs", settle, func() bool { return strings.Contains(w.Run("cat", ws+"/env").Stdout, "LAZARET_SESSION_ID=") })
		if n := w.connections(ws); n != 1 {
			t.Errorf("%d connections for one detached exec", n)
		}
		if got := w.Run("cat", ws+"/env").OK(t); strings.Count(got, "LAZARET_SESSION_ID=") != 1 || !strings.Contains(got, "LAZARET_DOMAIN="+w.hashOf(ws)) {
			t.Errorf("environment %s", got)
		}
		w.engine("sh", "-c", `kill -9 $(cat "$1")`, "sh", pidFile).OK(t)
		w.Eventually("the session ends with its process on the host", settle, func() bool { return w.connections(ws) == 0 })
		w.rt("delete", "--force", id).OK(t)
		w.nothingRuns()
	})
}

// An engine's console socket gets the terminal, of create and of exec.
func TestConsoleSockets(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		id, sock := w.id("c"), filepath.Join(w.Runtime, "cs")
		if w.rootful {
			sock = filepath.Join(w.Dir, "cs") // /run is the namespace's own
		}
		b := w.bundle("echo from create; stty size; sleep 100", func(s *specs.Spec) {
			s.Process.Terminal = true
			s.Process.ConsoleSize = &specs.Box{Height: 33, Width: 77}
			s.Process.Env = append(s.Process.Env, "TERM=xterm")
		})
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if err := os.Chmod(sock, 0o777); err != nil {
			t.Fatal(err)
		}
		// Every terminal that arrives is read to its end.
		text, done := make(chan string, 10), make(chan struct{})
		defer close(done)
		go func() {
			for {
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				go func() {
					f, shown := firstOf(c)
					text <- shown
					<-done // closing a terminal ends what runs on it
					if f != nil {
						_ = f.Close()
					}
				}()
			}
		}()
		w.rt("--network=none", "create", "--bundle", b, "--console-socket", sock, id).OK(t)
		w.rt("start", id).OK(t)
		if got := <-text; !strings.Contains(got, "from create") {
			t.Errorf("the terminal of create showed %q", got)
		}
		process := filepath.Join(w.Dir, "process.json")
		w.WriteFile(process, `{"terminal":true,"args":["sh","-c","echo from exec; test -t 0 && echo tty; sleep 1"],"cwd":"/","env":["PATH=/bin","TERM=xterm"],"user":{"uid":0,"gid":0}}`)
		// conmon before 2.1.8 says --tty too, which runsc does not know.
		w.rt("exec", "--process", process, "--pid-file", filepath.Join(w.Dir, "exec.pid"), "--detach", "--tty", "--console-socket", sock, id).OK(t)
		if got := <-text; !strings.Contains(got, "from exec\r\ntty") {
			t.Errorf("the terminal of exec showed %q", got)
		}
		w.rt("delete", "--force", id).OK(t)
		w.nothingRuns()
	})
}

// firstOf reads the terminal that comes over a console socket until it has shown
// two lines, or ends. The terminal is nil where none came.
func firstOf(c *net.UnixConn) (*os.File, string) {
	defer func() { _ = c.Close() }()
	buf, oob := make([]byte, 4096), make([]byte, 64)
	_, n, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err.Error()
	}
	msgs, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, "no terminal came"
	}
	fds, err := unix.ParseUnixRights(&unix.SocketControlMessage{Header: unix.Cmsghdr(msgs[0].Header), Data: msgs[0].Data})
	if err != nil || len(fds) != 1 {
		return nil, "no terminal came"
	}
	f := os.NewFile(uintptr(fds[0]), "terminal")
	var text strings.Builder
	for strings.Count(text.String(), "\n") < 2 {
		k, err := f.Read(buf)
		if err != nil {
			break
		}
		text.Write(buf[:k])
	}
	return f, text.String()
}
