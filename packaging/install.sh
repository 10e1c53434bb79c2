#!/bin/sh
# Installs Lazaret from the unpacked archive in which this script lies.
#   ./install.sh [--prefix DIR] [--destdir DIR] [--uninstall]
# It checks SHA256SUMS first: that finds a damaged archive. Whether the archive is the one
# that was released, the SHA256SUMS beside it at the place of the release tell.
set -eu

prefix=/usr/local destdir='' action=install
die() {
	echo "install.sh: $1" >&2
	exit 1
}
while [ $# -gt 0 ]; do
	case $1 in
	--prefix | --destdir)
		[ $# -ge 2 ] || die "$1 needs a directory"
		case $2 in
		/*) ;;
		*) die "$1 $2: want an absolute path" ;;
		esac
		if [ "$1" = --prefix ]; then prefix=$2; else destdir=$2; fi
		shift
		;;
	--uninstall) action=uninstall ;;
	*) die "usage: install.sh [--prefix DIR] [--destdir DIR] [--uninstall]" ;;
	esac
	shift
done
cd "$(dirname "$0")"
root=$destdir$prefix

sha256sum --strict --quiet -c SHA256SUMS || die "the archive is damaged: get it again"
files=$(sed -n 's/^[0-9a-f]\{64\}  \(\(bin\|lib\|libexec\|share\)\/.*\)$/\1/p' SHA256SUMS)
[ -n "$files" ] || die "SHA256SUMS lists nothing to install"

if [ $action = uninstall ]; then
	for f in $files; do rm -f "$root/$f"; done
	rmdir "$root/libexec/lazaret" "$root/share/doc/lazaret/docs" "$root/share/doc/lazaret" 2>/dev/null || true
	echo "removed Lazaret from $root"
	exit 0
fi
if [ -z "$destdir" ] && ! bin/lazaret --version >/dev/null 2>&1; then
	die "these programs do not run here ($(uname -m)): get the archive for this machine"
fi
for f in $files; do
	mode=0644
	case $f in bin/* | libexec/*) mode=0755 ;; esac
	# install(1) makes a new file: a program that runs keeps the one it has.
	install -D -m $mode "$f" "$root/$f" || die "cannot write $root/$f: run it with sudo, or choose a --prefix of yours"
done
echo "installed $(sed -n 's/^version: //p' VERSION) in $root"
echo "next: lazaret init, then lazaret doctor"
