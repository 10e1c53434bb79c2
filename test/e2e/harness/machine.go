package harness

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// What test/scripts/setup.sh leaves on the machine; keep in step with it.
const (
	TestUser       = "lazaret-test"
	SandboxCurrent = "/usr/local/lib/lazaret-test/runsc" // the pinned runsc
	SandboxDebian  = "/usr/bin/runsc"                    // the distribution's
	SandboxRunc    = "runc"                              // no gVisor: what there is to see is the host's kernel's
	Busybox        = "localhost/lazaret-test/busybox:1"  // applets in /bin, users root and agent
	Debian         = "localhost/lazaret-test/debian:1"   // bash, git, tmux, vim.tiny, tput, python3
	Tools          = "localhost/lazaret-test/tools:1"    // Debian and git-bookworm, rg, node, npm, pygit2; by setup.sh --tools
)

const rootStore = "/var/lib/lazaret-test/storage"

// User is who podman and Lazaret run as: never root, except in rootful tests.
type User struct {
	Name     string
	UID, GID int
	Home     string // of the account; tests get a home of their own
}

// credential is nil where the tests themselves run as this user.
func (u User) credential() *syscall.Credential {
	if os.Geteuid() == u.UID {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}

// store is the image store that set-up filled; tests read it.
func (u User) store() string {
	if u.UID == 0 {
		return rootStore
	}
	return filepath.Join(u.Home, ".local/share/lazaret-test/storage")
}

// Machine is a machine that was set up for tests.
type Machine struct {
	User User
	repo string
}

// machine looks once; a set-up that is missing fails every test that needs it.
var machine = sync.OnceValues(findMachine)

func findMachine() (*Machine, error) {
	m := &Machine{}
	name := TestUser
	if os.Geteuid() != 0 {
		u, err := user.Current()
		if err != nil {
			return nil, err
		}
		name = u.Username
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, notSetUp(err)
	}
	m.User = User{Name: name, Home: u.HomeDir}
	if m.User.UID, err = strconv.Atoi(u.Uid); err != nil {
		return nil, err
	}
	if m.User.GID, err = strconv.Atoi(u.Gid); err != nil {
		return nil, err
	}
	if m.repo, err = repository(); err != nil {
		return nil, err
	}
	var missing []error
	for _, path := range []string{
		SandboxCurrent, "/usr/bin/podman", "/usr/bin/conmon", "/dev/fuse", "/dev/net/tun",
		filepath.Join(m.User.store(), "overlay-images"), runUser(m.User),
	} {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, err)
		}
	}
	if len(missing) > 0 {
		return nil, notSetUp(errors.Join(missing...))
	}
	return m, nil
}

func notSetUp(err error) error {
	return fmt.Errorf("this machine is not set up for end-to-end tests (run test/scripts/setup.sh, or go test -short to skip them): %w", err)
}

func runUser(u User) string { return filepath.Join("/run/user", strconv.Itoa(u.UID)) }

// repository is the root of this checkout.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		data, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/lazaret-dev/lazaret\n") {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s is not inside a Lazaret checkout", dir)
}

// Sandbox is one runsc that the tests run with.
type Sandbox struct {
	Name string // fit for a subtest's name
	Path string
}

// Sandboxes lists the runsc programs of this machine: the pinned one always,
// Debian's where its release has one.
func Sandboxes() []Sandbox {
	all := []Sandbox{{"current", SandboxCurrent}, {"debian", SandboxDebian}}
	return slices.DeleteFunc(all, func(s Sandbox) bool {
		if s.Path == SandboxCurrent {
			return false // missing: a failure of findMachine's, not a test less
		}
		_, err := os.Stat(s.Path)
		return err != nil
	})
}
