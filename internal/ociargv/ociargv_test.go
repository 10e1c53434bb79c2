package ociargv

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		in   string // words parted by blanks
		verb string
		id   string
		want string // for runsc, without its own name
		more func(*Command) bool
	}{
		{
			"podman create", "create --bundle /b --pid-file /p ctr", "create", "ctr", "create --bundle=/b --pid-file=/p ctr",
			func(c *Command) bool { return c.Bundle == "/b" && c.PIDFile == "/p" },
		},
		{
			"the log's path ends in a verb", "--log /x/create --log-format json create --bundle /b id", "create", "id", "--log=/x/create --log-format=json create --bundle=/b id",
			func(c *Command) bool { return c.Log == "/x/create" && c.LogFormat == "json" },
		},
		{"the log is called create", "--log create state id", "state", "id", "--log=create state id", nil},
		{"root with an equals sign", "--root=/r state id", "state", "id", "--root=/r state id", func(c *Command) bool { return c.Root == "/r" }},
		{"one dash as Go's flags take it", "-root /r -debug state id", "state", "id", "--root=/r --debug state id", nil},
		{"short bundle flag", "create -b /b id", "create", "id", "create --bundle=/b id", func(c *Command) bool { return c.Bundle == "/b" }},
		{"bundle from the working directory", "create id", "create", "id", "create id", func(c *Command) bool { return c.Bundle == "" }},
		{"a bundle called create", "create --bundle create exec", "create", "exec", "create --bundle=create exec", func(c *Command) bool { return c.Bundle == "create" }},
		{"ids that are verbs", "state create", "state", "create", "state create", nil},
		{"run detached, short", "run -d id", "run", "id", "run --detach id", func(c *Command) bool { return c.Detach }},
		{"delete by force, short", "delete -f id", "delete", "id", "delete --force id", func(c *Command) bool { return c.Force }},
		{"kill with a signal", "kill id KILL", "kill", "id", "kill id KILL", nil},
		{"kill all", "kill --all id 9", "kill", "id", "kill --all id 9", nil},
		{"list quietly", "list -q", "list", "", "list --quiet", nil},
		{"ps as docker asks", "ps --format json id", "ps", "id", "ps --format=json id", nil},
		{"ps, short", "ps -f json id", "ps", "id", "ps --format=json id", nil},
		{"events as go-runc asks", "events --interval=5s id", "events", "id", "events --interval=5 id", nil},
		{"events, a part of a second", "events --interval 1500ms id", "events", "id", "events --interval=2 id", nil},
		{"events, runsc's own spelling", "events --interval 7 id", "events", "id", "events --interval=7 id", nil},
		{"events once", "events --stats id", "events", "id", "events --stats id", nil},
		{
			"containerd's create", "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup create --bundle /b --pid-file /b/init.pid --console-socket /s --no-new-keyring id", "create", "id",
			"--root=/run/containerd/runc/k8s.io --log=/b/log.json --log-format=json create --bundle=/b --pid-file=/b/init.pid --console-socket=/s id",
			func(c *Command) bool { return c.CgroupManager == "systemd" },
		},
		{"go-runc's rootless flag", "--rootless=true list --format=json", "list", "", "list --format=json", nil},
		{"go-runc's update", "update --resources=- id", "update", "id", "update --resources=- id", nil},
		{
			"go-runc's checkpoint", "checkpoint --image-path /i --work-path /w --tcp-established --ext-unix-sk --shell-job --file-locks --manage-cgroups-mode soft --empty-ns network --leave-running id", "checkpoint", "id",
			"checkpoint --image-path=/i --work-path=/w --leave-running id", nil,
		},
		{
			"go-runc's restore", "restore --image-path /i --work-path /w --detach --pid-file /p --no-pivot -no-subreaper --bundle /b id", "restore", "id",
			"restore --image-path=/i --work-path=/w --detach --pid-file=/p --no-subreaper --bundle=/b id", nil,
		},
		{"CRI-O's delete", "--root /run/runc delete --force id", "delete", "id", "--root=/run/runc delete --force id", nil},
		{
			"conmon's exec with --tty", "exec --pid-file /p --process /j --detach --tty --console-socket /c id", "exec", "id",
			"exec --pid-file=/p --process=/j --detach --console-socket=/c id",
			func(c *Command) bool { return c.Process == "/j" && c.ConsoleSocket == "/c" && c.Detach },
		},
		{"exec -t -e", "exec -t -e A=b -u 1:2 id sh -c x", "exec", "id", "exec --env=A=b --user=1:2 id sh -c x", nil},
		{"flags of the command are its own", "exec id ls --detach -d", "exec", "id", "exec id ls --detach -d", func(c *Command) bool { return !c.Detach }},
		{"two dashes end the flags", "exec -- id ls", "exec", "id", "exec id ls", nil},
		{"an id that looks like a flag", "state -- -id", "state", "-id", "state -- -id", nil},
		{"podman without cgroups", "--cgroup-manager disabled create id", "create", "id", "create id", func(c *Command) bool { return c.CgroupManager == "disabled" }},
		{"systemd cgroups", "--systemd-cgroup create id", "create", "id", "create id", func(c *Command) bool { return c.CgroupManager == "systemd" }},
		{"runc's rootless word means another thing to runsc", "--rootless=auto state id", "state", "id", "state id", nil},
		{"podman's own flag for runsc, with =", "--platform=kvm create id", "create", "id", "--platform=kvm create id", nil},
		{"a known flag with its value apart", "--network none create id", "create", "id", "--network=none create id", nil},
		{"an unknown flag without value", "--future create id", "create", "id", "--future create id", nil},
		{"an unknown flag with a value", "--future yes create id", "create", "id", "--future yes create id", nil},
		{"an unknown flag of the verb", "start --future id", "start", "id", "start --future id", nil},
		{"a boolean set to false", "delete --force=false id", "delete", "id", "delete id", func(c *Command) bool { return !c.Force }},
		{"a global boolean set to false", "--debug=false state id", "state", "id", "--debug=false state id", nil},
		{"our configuration is ours", "--config /c state id", "state", "id", "state id", func(c *Command) bool { return c.Config == "/c" }},
		{"no pivot and no keyring", "create --no-pivot --no-new-keyring id", "create", "id", "create id", nil},
		{"no descriptors to preserve", "create --preserve-fds 0 id", "create", "id", "create id", func(c *Command) bool { return c.Refused == "" }},
		{"descriptors to preserve are refused", "create --preserve-fds 2 id", "create", "id", "create id", func(c *Command) bool { return strings.Contains(c.Refused, "--preserve-fds") }},
		{"version", "--version", "", "", "", func(c *Command) bool { return c.Version }},
		{"short version", "-v", "", "", "", func(c *Command) bool { return c.Version }},
		{"help", "--help", "", "", "", func(c *Command) bool { return c.Help }},
		{"nothing", "", "", "", "", nil},
		{"an unknown verb has no id", "frobnicate id", "frobnicate", "", "frobnicate id", nil},
		{"spec has no id", "spec --bundle /b", "spec", "", "spec --bundle=/b", nil},
		{"update", "update --memory 64m id", "update", "id", "update --memory=64m id", nil},
		{"an empty flag value", "--root= state id", "state", "id", "--root= state id", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse(strings.Fields(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if c.Verb != tt.verb || c.ID() != tt.id {
				t.Errorf("verb %q id %q, want %q %q", c.Verb, c.ID(), tt.verb, tt.id)
			}
			if got := c.Argv("runsc"); !slices.Equal(got, append([]string{"runsc"}, strings.Fields(tt.want)...)) {
				t.Errorf("argv %q, want %q", got, tt.want)
			}
			if tt.more != nil && !tt.more(c) {
				t.Errorf("fields: %+v", c)
			}
		})
	}
}

// What came before the fault is known: the engine reads the reason in its log.
func TestParseMissingValueKeepsTheLog(t *testing.T) {
	c, err := Parse(strings.Fields("--log /l --log-format json create --bundle"))
	if err == nil || c == nil || c.Log != "/l" || c.LogFormat != "json" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = Parse(strings.Fields("--log /l --root"))
	if err == nil || c == nil || c.Log != "/l" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestParseMissingValue(t *testing.T) {
	for _, in := range []string{"--log", "--root", "create --bundle", "exec --process", "--log-format"} {
		if _, err := Parse(strings.Fields(in)); err == nil {
			t.Errorf("%q: accepted", in)
		}
	}
}

func TestExtraGlobalFlagsComeBeforeTheVerb(t *testing.T) {
	c, err := Parse([]string{"--root", "/r", "start", "id"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"runsc", "--root=/r", "--ignore-cgroups", "start", "id"}
	if got := c.Argv("runsc", "--ignore-cgroups"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if !c.HasGlobal("root") || c.HasGlobal("ignore-cgroups") {
		t.Error("HasGlobal")
	}
}

// FuzzParse: whatever is parsed is said to runsc such that parsing it again
// means the same, and our own flags never reach it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"--log create state id", "create -b /b id", "exec --tty -- id ls", "--x y run", "--config=/c delete -f", "-", "--", "-- create id", "kill id 9", "--=x state id", "state -- -x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(strings.Split(s, " "))
		if err != nil {
			return
		}
		argv := c.Argv("runsc")[1:]
		again, err := Parse(argv)
		if err != nil {
			t.Fatalf("%q: %v", argv, err)
		}
		if IsVerb(c.Verb) && again.Verb != c.Verb {
			t.Fatalf("%q: verb %q became %q", s, c.Verb, again.Verb)
		}
		if IsVerb(c.Verb) && again.ID() != c.ID() {
			t.Fatalf("%q: id %q became %q by %q", s, c.ID(), again.ID(), argv)
		}
		if c.HasGlobal("config") {
			t.Fatalf("%q: --config reaches runsc", s)
		}
	})
}
