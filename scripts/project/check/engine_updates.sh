#!/bin/bash
# Compares the versions of the cache engines with the newest ones in Debian's archives, security archives included:
#
#   scripts/check engine-updates           those that this release was tried with (images/engines)
#   scripts/check engine-updates FILE…     those in images that were built: SPDX documents (*.spdx.json of a release), or archives of
#                                          scripts/images (*.tar)
#
# For a newer version it says whether it comes from a security archive, and which advisories (CVE, VSV) the changelog in the package names.
#
# Exit code 1 where a newer one is out: read its changelog, try it (make test-engines), write the new version into images/engines, and build new
# images. Exit code 2 where an archive or a file could not be read. Needs apt; for FILE also python3. Runs as any user.
#
# Not part of .ci/run: a new package must not make a change red that has nothing to do with it.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
newer=0 broken=0

problem() {
	echo "scripts/check engine-updates: $*" >&2
	broken=1
}

# prepare SUITE: lists of its own for apt, once; the options for apt go into the array `apt`.
prepare() {
	local dir=$work/$1
	apt=(-o "Dir::State=$dir" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o "Dir::Etc::sourcelist=$dir/sources.list"
		-o "Dir::Etc::sourceparts=$dir/parts" -o "Dir::Etc::preferences=/dev/null" -o "Dir::Etc::preferencesparts=$dir/parts"
		-o "Acquire::Check-Valid-Until=false" -o "APT::Sandbox::User=")
	[ ! -e "$dir/ready" ] || return 0
	mkdir -p "$dir"/{lists/partial,cache/archives/partial,parts}
	: >"$dir/status"
	"$checkout/scripts/tool" debian-root --print "$1" >"$dir/sources.list" || return
	# Without the option, a list that cannot be fetched is a warning, and the exit code is 0.
	apt-get "${apt[@]}" -o APT::Update::Error-Mode=any update -qq >"$dir/log" 2>&1 || { cat "$dir/log" >&2; return 1; }
	: >"$dir/ready"
}

# is_security PACKAGE VERSION: whether a security archive has this version.
is_security() {
	apt-cache "${apt[@]}" madison "$1" | awk -F ' *[|] *' -v version="$2" '$2 == version && $3 ~ /-security/ { found = 1 } END { exit !found }'
}

# advisories PACKAGE OLD: what entries of its changelog above that of OLD name. Nothing where the package cannot be read.
advisories() {
	local dir package=$1 link
	dir=$(mktemp -d -p "$work")
	for _ in 1 2; do
		(cd "$dir" && apt-get "${apt[@]}" download -qq "$package" >/dev/null 2>&1) || return 0
		# The documentation of a package may lie in another one of the same source.
		link=$(dpkg-deb --fsys-tarfile "$dir/$package"_*.deb | tar --list --verbose 2>/dev/null | sed -n "s|.* \./usr/share/doc/$package -> ||p")
		[ -n "$link" ] || break
		package=$link
	done
	dpkg-deb --fsys-tarfile "$dir/$package"_*.deb | tar --extract --to-stdout "./usr/share/doc/$package/changelog.Debian.gz" 2>/dev/null |
		gunzip 2>/dev/null | awk -v old="($2)" '$2 == old { exit } { print }' | grep -oE 'CVE-[0-9]+-[0-9]+|VSV[0-9]+' | sort -u | paste -sd ' ' - || true
}

# compare WHERE SUITE PACKAGE VERSION
compare() {
	local where=$1 suite=$2 package=$3 known=$4 found named
	prepare "$suite" || { problem "the archives of $suite could not be read: is the mirror reachable?"; return 0; }
	found=$(apt-cache "${apt[@]}" policy "$package" | awk '$1 == "Candidate:" { print $2 }')
	case $found in
	'' | '(none)')
		problem "$suite has no package $package"
		return 0
		;;
	esac
	if [ "$found" = "$known" ]; then
		echo "$where: $package $known is the newest of $suite"
	elif dpkg --compare-versions "$found" lt "$known"; then
		echo "$where: $package $known is newer than $found, the newest of $suite: the mirror may lag behind"
	else
		newer=1
		echo "$where: $package $found is out in $suite; this is $known"
		if is_security "$package" "$found"; then echo "    it comes from the security archive"; fi
		named=$(advisories "$package" "$known")
		if [ -n "$named" ]; then echo "    its changelog names $named"; else echo "    its changelog names no advisory, or could not be read"; fi
	fi
}

# in_image FILE: engines in it, "SUITE PACKAGE VERSION" each. Images have varnish out of trixie, and vinyl-cache out of forky.
in_image() {
	python3 -B - "$checkout/scripts" "$1" <<'PYTHON'
import json
import sys

sys.path.insert(0, sys.argv[1])
from project.generate.sbom import debian

file = sys.argv[2]
if file.endswith(".tar"):
    packages = debian(file)[1]
else:
    with open(file) as text:
        packages = json.load(text)["packages"]
suites = {"varnish": "trixie", "vinyl-cache": "forky"}
for package in packages:
    if package["name"] in suites and package["SPDXID"].startswith("SPDXRef-Debian-"):
        print(suites[package["name"]], package["name"], package["versionInfo"])
PYTHON
}

if [ $# = 0 ]; then
	while read -r suite package version; do
		case $suite in '' | '#'*) continue ;; esac
		compare images/engines "$suite" "$package" "$version"
	done <"$checkout/images/engines"
fi
for file in "$@"; do
	if ! engines=$(in_image "$file") || [ -z "$engines" ]; then
		problem "$file names no cache engine: give the SPDX document or the archive of a gateway-chaperone image"
		continue
	fi
	while read -r suite package version; do
		compare "${file##*/}" "$suite" "$package" "$version"
	done <<<"$engines"
done
[ $broken = 0 ] || exit 2
exit $newer
