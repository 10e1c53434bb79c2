#!/bin/sh
# Makes a minimal Debian with debootstrap and prints it as a tar archive:
#   podman unshare unshare --mount --propagation private sh -c "$(cat debian.sh)" debian SUITE [MIRROR]
# It is made on memory in a mount namespace of its own, so that nothing is left of it.
set -eu
mount -t tmpfs -o size=2g,mode=755 lazaret-debian /mnt
root=/mnt/root
# A user namespace makes no devices: these are there already, and for debootstrap
# this is a container that may lack others.
mkdir -p "$root/dev"
for d in null zero full random urandom tty; do
	: >"$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
: >"$root/dev/console"
container=lxc debootstrap --variant=minbase "$1" "$root" ${2:+"$2"} >&2
# A mirror of one's own may not have these.
if [ -z "${2:-}" ]; then
	echo "deb http://deb.debian.org/debian $1-updates main" >>"$root/etc/apt/sources.list"
	echo "deb http://deb.debian.org/debian-security $1-security main" >>"$root/etc/apt/sources.list"
fi
tar -C "$root" --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' --exclude='./debootstrap' \
	--exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' -cf - .
