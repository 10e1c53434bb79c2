package ociargv

// globalFlag knows runsc's global flags, of its releases from 2022 on, and those
// of runc and crun that engines pass. Which of them take a value decides where
// the verb is.
func globalFlag(name string) (f flag, known bool) {
	switch name {
	case "EXPERIMENTAL-xdp", "TESTONLY-autosave-image-path", "TESTONLY-test-name-env",
		"cgroup-manager", "character-device-policy", "config", "control-rpc-stop-timeout", "coverage-fd",
		"coverage-report", "dcache", "debug-command", "debug-log", "debug-log-fd", "debug-log-format",
		"fdlimit", "file-access", "file-access-mounts", "final-metrics-log", "gofer-network-namespace",
		"host-fifo", "host-settings", "host-uds", "in-sandbox-cgroup", "log", "log-fd", "log-format",
		"metric-exporter-address", "metric-server", "network", "network-processors-per-channel",
		"num-network-channels", "nvproxy-allowed-driver-capabilities", "nvproxy-driver-version",
		"overlay2", "override-procs", "panic-log", "panic-log-fd", "panic-signal", "pcap-log",
		"platform", "platform_device_path", "pod-init-config", "profile-block", "profile-cpu",
		"profile-gc-interval", "profile-heap", "profile-mutex", "profiling-metrics",
		"profiling-metrics-log", "profiling-metrics-rate-us", "qdisc", "qdisc-tbf-burst",
		"qdisc-tbf-rate", "ref-leak-mode", "restore-spec-validation", "root", "shared-root",
		"sidecar-release-enforcement-policy", "sidecar-usage-policy", "strace-log-size",
		"strace-syscalls", "trace", "traceback", "watchdog-action":
		return flag{to: name, value: true}, true
	case "EXPERIMENTAL-afxdp", "EXPERIMENTAL-xdp-need-wakeup", "TESTONLY-afs-syscall-panic",
		"TESTONLY-allow-packet-endpoint-write", "TESTONLY-autosave-resume", "TESTONLY-nftables",
		"TESTONLY-unsafe-nonroot", "allow-connected-on-save", "allow-flag-override",
		"allow-live-tcp-migration", "allow-packet-socket-write", "allow-rootfs-tar-annotation",
		"allow-suid", "alsologtostderr", "app-huge-pages", "buffer-pooling", "cgroupfs",
		"cpu-num-from-quota", "debug", "debug-to-user-log", "directfs", "enable-core-tags",
		"fsgofer-host-uds", "fuse", "gso", "gvisor-gro", "gvisor-marker-file", "h", "help",
		"ignore-cgroups", "iouring", "kvm-use-cpu-nums", "lisafs", "log-packets", "mount-cgroup-v2",
		"net-disconnect-ok", "net-raw", "nvproxy", "nvproxy-allow-unsupported-driver", "nvproxy-docker",
		"oci-seccomp", "overlay", "pause-external-networking", "profile", "rdmaproxy", "reproduce-nat",
		"reproduce-nftables", "rootless", "rx-checksum-offload", "save-restore-netstack", "software-gso",
		"strace", "strace-event", "systemd-cgroup", "systrap-disable-fast-path",
		"systrap-disable-syscall-patching", "tpuproxy", "tx-checksum-offload", "v", "version", "vfs2":
		return flag{to: name}, true
	case "criu":
		return flag{value: true, drop: true}, true
	}
	return flag{}, false
}

const (
	noFDs      = "gVisor cannot hand host descriptors to the container"
	noLabels   = "gVisor applies no host security labels inside the sandbox"
	oneCgroup  = "gVisor runs every process of a container in one cgroup"
	noKeep     = "runsc always removes the container after run"
	noPIDFD    = "runsc makes no pidfd socket"
	wholeImage = "gVisor checkpoints in one piece, without CRIU"
)

// verbFlag knows runc's and runsc's flags of each verb, with what becomes of them.
func verbFlag(verb, name string) (f flag, known bool) {
	switch verb + " --" + name {
	case "checkpoint --auto-dedup", "checkpoint --ext-unix-sk", "checkpoint --file-locks",
		"checkpoint --shell-job", "checkpoint --tcp-established", "create --no-new-keyring",
		"create --no-pivot", "exec --ignore-paused", "exec --no-new-privs", "exec --t", "exec --tty",
		"restore --auto-dedup", "restore --ext-unix-sk", "restore --file-locks", "restore --lazy-pages",
		"restore --no-new-keyring", "restore --no-pivot", "restore --shell-job",
		"restore --tcp-established", "run --no-new-keyring", "run --no-pivot", "run --no-subreaper",
		"spec --rootless":
		return flag{drop: true}, true
	case "checkpoint --compression", "checkpoint --cuda-checkpoint-path", "checkpoint --image-path",
		"checkpoint --save-restore-exec-argv", "checkpoint --save-restore-exec-timeout",
		"checkpoint --work-path", "create --bundle", "create --console-socket",
		"create --fs-restore-image-path", "create --pid-file", "create --user-log", "events --interval",
		"exec --additional-gids", "exec --cap", "exec --console-socket", "exec --cwd", "exec --env",
		"exec --exec-fd", "exec --internal-pid-file", "exec --pass-fd", "exec --pid-file",
		"exec --process", "exec --user", "kill --pgid", "kill --pid", "list --format", "ps --format",
		"restore --bundle", "restore --console-socket", "restore --fs-restore-image-path",
		"restore --image-path", "restore --pid-file", "restore --user-log", "restore --work-path",
		"run --bundle", "run --console-socket", "run --exec-fd", "run --fs-restore-image-path",
		"run --pass-fd", "run --pid-file", "run --user-log", "spec --bundle", "spec --cwd",
		"spec --netns", "update --blkio-weight", "update --cpu-burst", "update --cpu-idle",
		"update --cpu-period", "update --cpu-quota", "update --cpu-rt-period", "update --cpu-rt-runtime",
		"update --cpu-share", "update --cpuset-cpus", "update --cpuset-mems", "update --l3-cache-schema",
		"update --mem-bw-schema", "update --memory", "update --memory-reservation",
		"update --memory-swap", "update --pids-limit", "update --resources", "wait --pid",
		"wait --rootpid":
		return flag{to: name, value: true}, true
	case "checkpoint --direct", "checkpoint --exclude-committed-zero-pages",
		"checkpoint --leave-running", "create --fs-restore-direct", "delete --force", "events --stats",
		"exec --detach", "kill --all", "list --quiet", "list --sandbox", "restore --background",
		"restore --detach", "restore --direct", "restore --fs-restore-direct", "restore --no-subreaper",
		"run --detach", "run --fs-restore-direct":
		return flag{to: name}, true
	case "checkpoint --empty-ns", "checkpoint --manage-cgroups-mode", "restore --empty-ns",
		"restore --lsm-mount-context", "restore --lsm-profile", "restore --manage-cgroups-mode":
		return flag{value: true, drop: true}, true
	case "checkpoint --lazy-pages", "checkpoint --pre-dump":
		return flag{refuse: wholeImage}, true
	case "checkpoint --page-server", "checkpoint --parent-path", "checkpoint --status-fd":
		return flag{value: true, refuse: wholeImage}, true
	case "create --b", "restore --b", "run --b", "spec --b":
		return flag{to: "bundle", value: true}, true
	case "create --pidfd-socket", "restore --pidfd-socket", "run --pidfd-socket":
		return flag{value: true, refuse: noPIDFD}, true
	case "create --preserve-fds", "exec --preserve-fds", "restore --preserve-fds",
		"run --preserve-fds":
		return flag{value: true, refuse: noFDs}, true
	case "delete --f":
		return flag{to: "force"}, true
	case "exec --apparmor", "exec --process-label":
		return flag{value: true, refuse: noLabels}, true
	case "exec --c":
		return flag{to: "cap", value: true}, true
	case "exec --cgroup":
		return flag{value: true, refuse: oneCgroup}, true
	case "exec --d", "restore --d", "run --d":
		return flag{to: "detach"}, true
	case "exec --e":
		return flag{to: "env", value: true}, true
	case "exec --g":
		return flag{to: "additional-gids", value: true}, true
	case "exec --p":
		return flag{to: "process", value: true}, true
	case "exec --u":
		return flag{to: "user", value: true}, true
	case "kill --a":
		return flag{to: "all"}, true
	case "list --f", "ps --f":
		return flag{to: "format", value: true}, true
	case "list --q":
		return flag{to: "quiet"}, true
	case "run --keep":
		return flag{refuse: noKeep}, true
	case "update --r":
		return flag{to: "resources", value: true}, true
	}
	return flag{}, false
}
