#!/bin/bash
# debian-root SUITE TARGET [OPTION…]: a root of that Debian suite, made by mmdebstrap from the mirror that this machine's apt
# uses, with the suite's updates and its security archive. TARGET is a folder, or a file that ends in .tar; OPTION is mmdebstrap's.
# Needs root.
#
# debian-root --print SUITE: the sources that would be used, one line each.

set -euo pipefail
sources=/etc/apt/sources.list.d/debian.sources

# field FIELD PATTERN: a field of the first stanza in apt's sources that matches (awk) PATTERN.
field() {
	[ -r "$sources" ] || return 0
	awk -v RS= "$2" "$sources" | awk -v field="$1:" '$1 == field { print $2; exit }'
}

# The first mirror that matches PATTERN on a machine whose apt still has the one-line form.
one_line() {
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
		awk '$1 == "deb" && '"$1"' { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) { print $i; exit } }'
}

mirror=$(field URIs '!/security/')
security=$(field URIs /security/)
keyring=$(field Signed-By '!/security/')
mirror=${mirror:-$(one_line '!/security/')}
security=${security:-$(one_line /security/)}
if [ -z "$mirror" ]; then
	echo "scripts/tool debian-root: neither $sources nor /etc/apt/sources.list names a Debian mirror" >&2
	exit 1
fi
# Mirrors have the security archive beside the other one.
security=${security:-${mirror%/}-security}

lines() {
	local signed=${keyring:+[signed-by=$keyring] }
	echo "deb $signed$mirror $1 main"
	# Unstable suites have neither.
	case $1 in sid | unstable) return ;; esac
	echo "deb $signed$mirror $1-updates main"
	echo "deb $signed$security $1-security main"
}

if [ "${1:-}" = --print ]; then
	lines "${2:?usage: debian-root --print SUITE}"
	exit
fi
suite=$1 target=$2
shift 2
command -v mmdebstrap >/dev/null || apt-get install -y --no-install-recommends mmdebstrap
mapfile -t from < <(lines "$suite")
# Mirrors of a suite under development may lag behind the date until which its lists are valid. Such a root is for tests only.
case $suite in forky) set -- --aptopt='Acquire::Check-Valid-Until "false"' "$@" ;; esac
echo "scripts/tool debian-root: making $target from ${from[*]}" >&2
exec mmdebstrap --quiet --mode=root --variant=minbase "$@" "$suite" "$target" "${from[@]}"
