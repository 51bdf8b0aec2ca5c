#!/bin/bash
# Builds the VMOD against the cache engine of a Debian suite and runs crates/ghost/tests/vtc in that engine:
#
#   scripts/test engine trixie          Varnish Cache 7.7; VCL is compiled as in the image of the data plane: by tcc (images/without-gcc)
#   scripts/test engine forky           Vinyl Cache 9.0; VCL is compiled by gcc, since forky has no tcc
#   scripts/test engine SUITE NAME…     cases whose name contains one of these
#   scripts/test engine SUITE --end-to-end [NAME…]
#                                  instead of these cases, crates/gateway/tests: with the binary of this machine, and the VMOD of the suite
#   scripts/test engine SUITE --vmod    only the VMOD, as a release has it, in the target directory of the suite (scripts/bench engines)
#
# The root is made by scripts/tool debian-root, and again when the list of packages below changes, when its sources change, and
# after two weeks, for security updates. The checkout, cargo's registry and the Rust toolchain are bind-mounted into it, in a mount
# namespace of its own: nothing stays mounted, whatever happens. The VMOD is linked inside, against the suite's glibc.
# Crates are fetched outside; nothing inside needs the network.
#
# images/engines has the versions that were tried. trixie is stable: its newest package is tested, since security updates must work, and
# another version than the tried one is a warning. forky is under development: its root has exactly the tried version, and a root that
# has it is kept. Where Debian's archive has that version no longer, the newest one is tested with a warning, and tests that fail with
# it are a warning, too (exit code 0): a change in Debian must not make a change of ours red.
#
# Needs root (chroot, mounts). Takes VG_CACHE, where the root and its target directory are kept, by default
# ~/.cache/varnish-gateway, and VARNISH_GATEWAY_DEFAULT_DATA_PATH, as the end-to-end tests do. Exit code: that of the tests, but for
# the case above.

set -euo pipefail

suite=${1:?usage: scripts/test engine trixie|forky [NAME…]}
shift
# The engine's package, and whether its version is pinned.
case $suite in
trixie) engine=varnish pinned=false packages=varnish,libvarnishapi-dev,tcc ;;
forky) engine=vinyl-cache pinned=true packages=vinyl-cache,libvinylapi-dev ;;
*)
	echo "scripts/test engine: unknown suite $suite: use trixie (Varnish Cache 7.7) or forky (Vinyl Cache 9.0)" >&2
	exit 2
	;;
esac
packages=$packages,gcc,libc6-dev,pkg-config,python3,curl,openssl,procps
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
cache=${VG_CACHE:-$HOME/.cache/varnish-gateway}
root=$cache/$suite
target=$cache/$suite-target
tried=$(awk -v suite="$suite" -v package="$engine" '$1 == suite && $2 == package { print $3 }' "$checkout/images/engines")
made_of="$packages
$("$checkout/scripts/tool" debian-root --print "$suite")"
! $pinned || made_of="$made_of
$engine=$tried"

fail() {
	echo "scripts/test engine: $*" >&2
	exit 1
}

warn() {
	echo "scripts/test engine: warning: $*" >&2
}

# A frame that is seen between the lines of a build.
warn_loudly() {
	echo >&2
	echo "##########################################################################################" >&2
	for line in "$@"; do warn "$line"; done
	echo "##########################################################################################" >&2
	echo >&2
}

[ -n "$tried" ] || fail "images/engines has no line for $suite $engine"

make_root() {
	local making=$root.making pin=()
	# All packages of the engine in this version. Where the archive does not have it, apt takes the newest.
	! $pinned || pin=(--setup-hook="printf 'Package: src:%s\\nPin: version %s\\nPin-Priority: 1001\\n' '$engine' '$tried' >\"\$1/etc/apt/preferences.d/engine\"")
	rm -rf --one-file-system "$making" "$root"
	mkdir -p "$cache"
	"$checkout/scripts/tool" debian-root "$suite" "$making" --include="$packages" "${pin[@]}"
	# Where varnishtest's "localhost" comes from.
	cp /etc/hosts "$making/etc/hosts"
	echo "$made_of" >"$making/etc/varnish-gateway-packages"
	mv "$making" "$root"
}

# In the mount namespace: everything at the path that it has outside.
run_inside() {
	local toolchain=$1 cargo_home=$2 dir
	shift 2
	for dir in "$checkout" "$toolchain" "$cargo_home" "$target"; do
		mkdir -p "$root$dir"
		mount --bind "$dir" "$root$dir"
	done
	mount -o remount,bind,ro "$root$checkout"
	mount -o remount,bind,ro "$root$toolchain"
	# Certificates of CAs, which the gateway asks for.
	if [ -d /etc/ssl/certs ]; then
		mkdir -p "$root/etc/ssl/certs"
		mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
	fi
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/tmp"
	# Where cargo gives tests a place of their own.
	[ ! -d "$checkout/target/tmp" ] || mount -t tmpfs tmpfs "$root$checkout/target/tmp"
	exec chroot "$root" /usr/bin/env -i \
		HOME=/root PATH="$toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 \
		CARGO_HOME="$cargo_home" CARGO_TARGET_DIR="$target" CARGO_NET_OFFLINE=true RUST_BACKTRACE=1 \
		${VARNISH_GATEWAY_DEFAULT_DATA_PATH:+VARNISH_GATEWAY_DEFAULT_DATA_PATH="$VARNISH_GATEWAY_DEFAULT_DATA_PATH"} \
		sh -euc '
			cd "$0"
			"$(command -v vinyld || command -v varnishd)" -V 2>&1 | head -n 1
			if command -v tcc >/dev/null && [ "$(dpkg --print-architecture)" = amd64 ]; then
				# varnishd looks for its compiler by name.
				install -D -m 755 images/vcl-cc /usr/local/bin/x86_64-linux-gnu-gcc
				PATH=/usr/local/bin:$PATH
				echo "VCL is compiled by images/vcl-cc: $(tcc -v)"
			fi
			if [ "${1:-}" = --vmod ]; then
				exec cargo build --locked --release -p ghost
			fi
			cargo build --locked -p ghost
			if [ "${1:-}" = --end-to-end ]; then
				program=$2
				shift 2
				mount --bind "$CARGO_TARGET_DIR/debug/libvmod_ghost.so" "${program%/deps/*}/libvmod_ghost.so"
				cd crates/gateway
				exec "$program" "$@"
			fi
			exec cargo test --locked -p ghost --test vtc --test engines -- "$@"
		' "$checkout" "$@"
}

# The executable of the end-to-end tests, built here. It runs on any newer glibc.
end_to_end() {
	cargo build --quiet --locked --workspace --all-targets
	cargo test --quiet --locked --workspace --test end-to-end --no-run --message-format=json |
		python3 -c '
import json, sys
built = [json.loads(line) for line in sys.stdin]
print(next(one["executable"] for one in built if one.get("target", {}).get("name") == "end-to-end" and one.get("executable")))'
}

if [ "${1:-}" = --inside ]; then
	shift
	run_inside "$@"
fi

if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || fail "needs root or sudo, for chroot and mounts"
	exec sudo env PATH="$PATH" HOME="$HOME" ${CARGO_HOME:+CARGO_HOME="$CARGO_HOME"} \
		${RUSTUP_HOME:+RUSTUP_HOME="$RUSTUP_HOME"} ${VG_CACHE:+VG_CACHE="$VG_CACHE"} \
		${VARNISH_GATEWAY_DEFAULT_DATA_PATH:+VARNISH_GATEWAY_DEFAULT_DATA_PATH="$VARNISH_GATEWAY_DEFAULT_DATA_PATH"} "$0" "$suite" "$@"
fi
command -v cargo >/dev/null || fail "cargo is not in PATH: the Rust toolchain of this machine is used inside"
installed() {
	chroot "$root" dpkg-query -W -f '${Version}' "$engine" 2>/dev/null
}
is_current() {
	local marker=$root/etc/varnish-gateway-packages
	[ "$(cat "$marker" 2>/dev/null)" = "$made_of" ] || return
	# A new root would have the same engine, or another one that nobody tried.
	if $pinned && [ "$(installed)" = "$tried" ]; then return; fi
	[ -n "$(find "$marker" -mtime -14)" ]
}
is_current || make_root
version=$(installed)
may_fail=false
if [ "$version" != "$tried" ]; then
	warn "$suite has $engine $version; the version that was tried is $tried (images/engines)"
	if $pinned && dpkg --compare-versions "$version" gt "$tried"; then may_fail=true; fi
fi
mkdir -p "$target"
cd "$checkout"
cargo fetch --quiet --locked
if [ "${1:-}" = --end-to-end ]; then
	shift
	program=$(end_to_end)
	set -- --end-to-end "$program" "$@"
fi
# A VMOD that does not build is no result of a test: scripts/bench needs it.
[ "${1:-}" != --vmod ] || may_fail=false
code=0
unshare --mount -- "$0" "$suite" --inside "$(rustc --print sysroot)" "${CARGO_HOME:-$HOME/.cargo}" "$@" || code=$?
if [ $code != 0 ] && $may_fail; then
	warn_loudly "the tests FAILED (exit code $code) with $engine $version, which is newer than $tried, the version that was tried." \
		"Debian's archive of $suite does not have $tried any more. This run does not fail because of that." \
		"Make the tests pass with $version, and write it into images/engines."
	exit 0
fi
exit $code
