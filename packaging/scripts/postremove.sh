#!/bin/sh
# dpkg --purge takes the drop-in away also where it was changed by hand. What sandboxes
# have kept (/var/lib/lazaret, ~/.local/share/lazaret) is the users' work and stays.
set -e
if [ "${1:-}" = purge ]; then
	rm -f /etc/containers/containers.conf.d/50-lazaret.conf
	rmdir --ignore-fail-on-non-empty /etc/containers/containers.conf.d /etc/containers 2>/dev/null || true
fi
exit 0
