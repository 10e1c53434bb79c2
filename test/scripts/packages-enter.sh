#!/usr/bin/env bash
# Makes a root of a minimal tree on a temporary file system, moves into it for good (user
# namespaces are refused in a mere chroot), and runs packages-inside.sh there.
#   packages-enter.sh ROOT TREE.tar FILES SUITE [alone]      in mount and pid namespaces of its own
set -euo pipefail
root=$1 tree=$2 files=$3
shift 3
mount -t tmpfs -o mode=0755,size=4g lazaret-packages "$root"
tar -C "$root" -xpf "$tree"
mkdir -p "$root"/{proc,sys,dev,run,tmp,old,files}
cp "$files"/* "$root/files/"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
# Authorities and sources of this machine's: its mirror may be its own.
if [[ -d /etc/apt/apt.conf.d ]]; then
	grep -rhsE '^Acquire[^{}]*;[[:space:]]*$' /etc/apt/apt.conf.d >"$root/etc/apt/apt.conf.d/90machine" || true
fi
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=0755 dev "$root/dev"
for d in null zero full random urandom tty fuse net/tun; do
	mkdir -p "$(dirname "$root/dev/$d")"
	touch "$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=0755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
cd "$root"
pivot_root . old
umount -l /old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
	DEBIAN_FRONTEND=noninteractive bash /files/packages-inside.sh "$@"
