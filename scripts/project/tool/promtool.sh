#!/bin/bash
# Prometheus' own checks: promtool of Debian's package, without its server. Arguments are promtool's.
set -euo pipefail
cached=${XDG_CACHE_HOME:-$HOME/.cache}/varnish-gateway/promtool
if ! command -v promtool >/dev/null && [ ! -x "$cached" ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	# apt's own user must be able to write there
	chmod 755 "$dir"
	(cd "$dir" && apt-get download -q prometheus >&2 2>/dev/null) ||
		(root=(); [ "$(id -u)" = 0 ] || root=(sudo); "${root[@]}" apt-get update -qq && cd "$dir" && apt-get download -q prometheus >&2)
	dpkg-deb -x "$dir"/prometheus_*.deb "$dir/out"
	mkdir -p "${cached%/*}"
	install -m 755 "$dir/out/usr/bin/promtool" "$cached"
	rm -rf "$dir"
	trap - EXIT
fi
exec "$(command -v promtool || echo "$cached")" "$@"
