package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Probe is what was tried in namespaces of the caller's own. Each field is ""
// when it worked, else the reason.
type Probe struct {
	Veth     string `json:"veth"`
	Nftables string `json:"nftables"`
	Overlay  string `json:"overlay"`
}

// runProbe starts command, which ends in ServeProbe, in new namespaces. An
// ordinary user becomes root of a user namespace that has only himself.
func runProbe(ctx context.Context, uid int, command []string) (Probe, error) {
	// Not the temporary directory: on tmpfs overlay has its own limits.
	dir, err := os.MkdirTemp("/var/tmp", "lazaret-doctor-")
	if err != nil {
		return Probe{}, fmt.Errorf("directory to try in: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing of value; the probe has emptied it
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], dir)...)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			return Probe{}, fmt.Errorf("%w: %s", err, firstLine(string(exit.Stderr)))
		}
		return Probe{}, fmt.Errorf("new namespaces: %w", err)
	}
	var p Probe
	if err := json.Unmarshal(out, &p); err != nil {
		return Probe{}, fmt.Errorf("answer of the probe: %w", err)
	}
	return p, nil
}

// ServeProbe is the probe's inner half: it tries things in the namespaces that
// it was started in and writes what it found to w. dir is an empty directory.
func ServeProbe(w io.Writer, dir string) error {
	// Nothing of this may reach the mounts of others.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	p := Probe{
		Veth:     text(tryVeth()),
		Nftables: text(tryNftables()),
		Overlay:  text(tryOverlay(dir)),
	}
	return json.NewEncoder(w).Encode(p)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func tryVeth() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lzprobe0"
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "lzprobe1"})
}

// tryNftables asks for the generation of the ruleset, the smallest question
// that nf_tables answers; the kernel loads the module for it where it can.
func tryNftables() error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func tryOverlay(dir string) (err error) {
	paths := map[string]string{}
	for _, n := range []string{"lower", "upper", "work", "merged"} {
		paths[n] = filepath.Join(dir, n)
		if err := os.Mkdir(paths[n], 0o700); err != nil {
			return err
		}
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", paths["lower"], paths["upper"], paths["work"])
	if inUserNamespace() {
		opts += ",userxattr" // trusted.* attributes are the initial namespace's root's alone
	}
	if err := unix.Mount("overlay", paths["merged"], "overlay", 0, opts); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	defer func() {
		if uerr := unix.Unmount(paths["merged"], unix.MNT_DETACH); uerr != nil && err == nil {
			err = fmt.Errorf("unmount: %w", uerr)
		}
		_ = os.RemoveAll(paths["work"]) // its inner directory has mode 0: only root here can
	}()
	return os.Mkdir(filepath.Join(paths["merged"], "new"), 0o700)
}

func inUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, count uint32
	if err != nil {
		return false
	}
	_, err = fmt.Sscan(string(data), &inside, &outside, &count)
	return err == nil && count != 1<<32-1
}
