#!/usr/bin/env bash
# Installs or removes man pages, completions, systemd user units, documents and the example configuration.
#   DESTDIR=… PREFIX=… docs.sh install|uninstall
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${DESTDIR:-}${PREFIX:-/usr/local}
shopt -s nullglob

# target FILE prints where a file goes under the prefix.
target() {
	local name=${1##*/}
	case $1 in
	packaging/man/*.[1-8]) echo "share/man/man${name##*.}/$name" ;;
	packaging/completions/lazaret.bash) echo share/bash-completion/completions/lazaret ;;
	packaging/completions/lazaret.zsh) echo share/zsh/site-functions/_lazaret ;;
	packaging/completions/lazaret.fish) echo share/fish/vendor_completions.d/lazaret.fish ;;
	packaging/systemd/*.service) echo "lib/systemd/user/$name" ;;
	docs/*) echo "share/doc/lazaret/docs/$name" ;;
	*) echo "share/doc/lazaret/$name" ;;
	esac
}

for file in packaging/man/*.[1-8] packaging/completions/lazaret.{bash,zsh,fish} packaging/systemd/*.service docs/*.md example.toml README.md LICENSE CHANGELOG.md; do
	[[ -e $file ]] || continue
	case ${1:-} in
	install) install -D -m 0644 "$file" "$root/$(target "$file")" ;;
	uninstall) rm -f "$root/$(target "$file")" ;;
	*)
		echo "usage: docs.sh install|uninstall" >&2
		exit 2
		;;
	esac
done
[[ ${1:-} != uninstall ]] || rmdir "$root/share/doc/lazaret/docs" "$root/share/doc/lazaret" 2>/dev/null || true
