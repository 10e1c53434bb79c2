#!/usr/bin/env bash
# The main job on a throw-away repository: registers the runtime, starts a
# guarded sandbox as an ordinary user and shows each guard holding. It ends with
# an error at the first that does not. with-prefix.sh runs it after setup.sh;
# everything is made in one directory, which is removed at the end.
set -euo pipefail

readonly IMAGE=localhost/lazaret-test/debian:1
readonly BUSYBOX=localhost/lazaret-test/busybox:1
readonly PREFIX=${LAZARET_TEST_PREFIX:?run this through make demo}

# As root the demo is the test user's: Lazaret is for ordinary users.
sudo=()
DEMO_USER=lazaret-test
if ((EUID != 0)); then
	sudo=(sudo -n)
	DEMO_USER=$(id -un)
fi
readonly DEMO_USER
DEMO_UID=$(id -u "$DEMO_USER")
readonly DEMO_UID

dir=$(mktemp -d /var/tmp/lazaret-demo.XXXXXXXX)
# A network of its own, as nothing is known of the machine's.
"${GO:-go}" build -o "$dir/world" ./test/demo/world
mkfifo "$dir/enter"
"${sudo[@]}" "$dir/world" "$dir" >"$dir/enter" &
world=$!
mapfile -t as_user <"$dir/enter"
((${#as_user[@]} > 0)) || exit 1
as_user=("${sudo[@]}" "${as_user[@]}" setpriv --reuid="$DEMO_USER" --regid="$(id -g "$DEMO_USER")" --init-groups)
chown "$DEMO_USER" "$dir"
# Its own runtime directory: the user's other domains are none of this demo's.
run=/run/user/$DEMO_UID/lazaret-demo
store=$(getent passwd "$DEMO_USER" | cut -d: -f6)/.local/share/lazaret-test/storage

user() {
	(cd "$dir/project" 2>/dev/null || cd "$dir" && exec "${as_user[@]}" env -i HOME="$dir" USER="$DEMO_USER" LANG=C.UTF-8 TERM="${TERM:-xterm}" \
		XDG_RUNTIME_DIR="$run" PATH="$PREFIX/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin" "$@")
}

cleanup() {
	local status=$?
	user podman rm -fa -t 0 >/dev/null 2>&1 || true
	user podman unshare rm -rf "$dir/.local" "$dir/project" >/dev/null 2>&1 || true
	# Ends the process that holds the user's namespaces, which the line above began.
	user podman system migrate >/dev/null 2>&1 || true
	kill "$world" 2>/dev/null || true
	wait "$world" 2>/dev/null || true
	"${sudo[@]}" rm -rf "$dir" "$run" 2>/dev/null || true
	((status == 0)) || printf '\nThe demo failed.\n' >&2
}
trap cleanup EXIT

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '  $ %s\n' "$*"; }
held() { printf '  \033[32m✓\033[0m %s\n' "$*"; }
fail() {
	printf '  \033[31m✗ %s\033[0m\n' "$*" >&2
	exit 1
}
sandbox() { user timeout 120 podman run --rm --runtime=lazaret -v "$dir/project:/workspace" -w /workspace "$@"; }

user mkdir -p -m 0700 "$run" "$dir/.config/containers" "$dir/.config/lazaret"
user tee "$dir/.config/containers/storage.conf" >/dev/null <<EOF
[storage]
driver = "overlay"
graphroot = "$dir/.local/share/containers/storage"
runroot = "$run/containers"
[storage.options]
additionalimagestores = ["$store"]
EOF
user tee "$dir/.config/lazaret/config.toml" >/dev/null <<'EOF'
[profiles.default.network]
allow = ["listed.example"]

[profiles.quiet]
git = "off"

[profiles.quiet.network]
mode = "none"
EOF

title "1. Register the runtime with podman, as $DEMO_USER"
show "lazaret init"
user lazaret init | sed 's/^/  /'
show "lazaret doctor"
user lazaret doctor | sed 's/^/  /' || true

title "2. A repository with an editor's settings"
user mkdir -p "$dir/project/.vscode"
user git init -q -b main "$dir/project"
user git -C "$dir/project" config user.name Demo
user git -C "$dir/project" config user.email demo@example.org
user sh -c 'echo "# Demo" > README.md; echo "{\"secret\": 1}" > .vscode/settings.json; echo "[profiles.default]" > lazaret.toml; git add -A; git commit -qm "First"; git rm -q --cached lazaret.toml; git commit -qm "Second"'
user git -C "$dir/project" log --oneline | sed 's/^/  /'
user lazaret domain "$dir/project" | sed 's/^/  /'
hash=$(user lazaret domain --json "$dir/project" | jq -r .hash)

title "3. Work in the sandbox: gVisor's kernel, the real repository"
show "podman run --rm --runtime=lazaret -v \"\$PWD:/workspace\" $IMAGE bash -c …"
out=$(sandbox "$IMAGE" bash -c 'uname -v; dmesg 2>/dev/null | head -1; git log --oneline | head -1; echo from-inside > made.txt; id -un')
printf '%s\n' "$out" | sed 's/^/  /'
grep -q "Second" <<<"$out" || fail "git does not work inside"
held "git reads the repository"
[[ $(stat -c %u "$dir/project/made.txt") == "$DEMO_UID" ]] || fail "made.txt does not belong to $DEMO_USER"
held "a file made inside is on the host and belongs to $DEMO_USER"

title "4. Git Sentry: git works, and can plant nothing"
before=$(sha256sum "$dir/project/.git/config")
out=$(sandbox "$IMAGE" bash -c 'git add made.txt && git -c user.name=Agent -c user.email=agent@example.org commit -qm "From inside" && git log --oneline -1
	git config core.fsmonitor "touch /tmp/pwned"; echo "exit code $?"
	mv .git .g; echo "#!/bin/sh" > .git/hooks/pre-commit
	git init -q nested && git -C nested config core.fsmonitor "touch /tmp/pwned" && git -C nested rev-parse --git-dir' 2>&1) || fail "git does not work inside: $out"
printf '%s\n' "$out" | sed 's/^/  /'
[[ $(user git -C "$dir/project" log --format=%s -1) == "From inside" ]] || fail "the commit is not on the host"
held "a commit made inside is on the host"
grep -q "lazaret: .git/config cannot be changed" <<<"$out" || fail "the refusal is not explained"
[[ $(sha256sum "$dir/project/.git/config") == "$before" ]] || fail ".git/config was changed"
held "git's configuration cannot be changed, and the sandbox is told why"
[[ -d $dir/project/.git && ! -e $dir/project/.git/hooks/pre-commit ]] || fail ".git was moved, or has a hook"
held ".git cannot be moved, and hooks made inside stay inside"
[[ -d $dir/project/nested && ! -e $dir/project/nested/.git ]] || fail "the nested repository is on the host"
held "a repository made inside works there and does not exist on the host"

title "5. What the sandbox cannot see or change"
out=$(sandbox "$IMAGE" bash -c 'mkdir -p .idea deep/.vscode && touch deep/.vscode/tasks.json; cat .vscode/settings.json; git status --short; echo "[general]" > lazaret.toml' 2>&1) && fail "lazaret.toml could be written"
grep -q "Read-only file system" <<<"$out" || fail "lazaret.toml: $out"
held "lazaret.toml is read-only"
[[ ! -e $dir/project/.idea && ! -e $dir/project/deep/.vscode ]] || fail "an editor's folder was made on the host"
held ".vscode and .idea made inside stay inside, at any depth"
out=$(sandbox --annotation dev.lazaret.profile=quiet "$IMAGE" bash -c 'echo x >> .git/HEAD; cat /proc/net/dev' 2>&1)
grep -q "Read-only file system" <<<"$out" || fail ".git could be written"
held "profile quiet: .git is read-only"
! grep -E '^ *[a-z0-9]+: +[0-9]+ +[0-9]+' <<<"$out" | grep -qv '^ *lo:' || fail "there is a network interface"
held "profile quiet: no network but loopback"

title "6. State Anchor: what the agent installs is there the next time"
show "podman run … 'install tool /usr/local/bin; echo setting >> /etc/profile'"
sandbox "$IMAGE" bash -c 'printf "#!/bin/sh\necho the tool runs\n" > /usr/local/bin/tool && chmod +x /usr/local/bin/tool && echo "# setting" >> /etc/profile'
show "podman run … tool"
out=$(sandbox "$IMAGE" tool) || fail "the tool is gone"
printf '%s\n' "$out" | sed 's/^/  /'
[[ $out == "the tool runs" ]] || fail "the tool is another"
show "lazaret state diff -w \$PROJECT"
out=$(user lazaret state diff -w "$dir/project")
printf '%s\n' "$out" | sed 's/^/  /'
for changed in /usr/local/bin/tool /etc/profile; do
	grep -q "$changed" <<<"$out" || fail "$changed is not told"
done
held "what was installed is kept for this workspace, and the image is as it was"

title "7. Network Sidecar: out only where the profile says"
for url in http://listed.example http://other.example http://203.0.113.11; do
	show "podman run … wget -qO- $url"
done
out=$(sandbox "$BUSYBOX" sh -c 'wget -qO- http://listed.example; wget -qO- http://other.example; wget -qO- http://203.0.113.11' 2>&1) || true
printf '%s\n' "$out" | sed 's/^/  /'
grep -q "this is listed.example" <<<"$out" || fail "a listed name is not reached"
held "a listed name is reached, by an unmodified program"
! grep -q "this is \(other\|203\)" <<<"$out" || fail "what is not listed was reached"
held "another name is refused, and by its address too"

title "8. What is refused"
for attempt in "--network=host $IMAGE" "--annotation dev.lazaret.profile=nope $IMAGE"; do
	show "podman run --runtime=lazaret $attempt true"
	# shellcheck disable=SC2086 # two words
	out=$(sandbox $attempt true 2>&1) && fail "it ran"
	printf '%s\n' "$out" | sed 's/^/  /'
done
out=$(user timeout 60 podman run --rm --runtime=lazaret -v "$dir:/workspace" "$IMAGE" true 2>&1) && fail "the home directory was accepted"
printf '%s\n' "$out" | sed 's/^/  /'
held "the host's network, an unknown profile and a home directory are refused"

title "9. One coordinator for the domain, as long as it is used"
user podman run -d --name demo --runtime=lazaret -v "$dir/project:/workspace" "$IMAGE" sleep 300 >/dev/null
show "podman exec demo …"
# shellcheck disable=SC2016 # the sandbox's variables
user podman exec demo sh -c 'echo "  session $LAZARET_SESSION_ID in domain $LAZARET_DOMAIN"'
user lazaret status | sed 's/^/  /'
user lazaret status --json | jq -e --arg h "$hash" '.domains[] | select(.domain.hash == $h and (.containers | length) == 1)' >/dev/null ||
	fail "status does not show the domain"
user podman rm -f -t 0 demo >/dev/null
for _ in $(seq 100); do
	[[ -e /tmp/lazaret_coord_$hash.sock || -e /tmp/lazaret_coord_$hash.lock ]] || break
	sleep 0.1
done
[[ ! -e /tmp/lazaret_coord_$hash.sock && ! -e /tmp/lazaret_coord_$hash.lock ]] || fail "the coordinator's names are left in /tmp"
held "with the last container the coordinator ended and left nothing"

title "All guards held."
