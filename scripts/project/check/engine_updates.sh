#!/bin/bash
# Compares the versions of the cache engines that this release was tried with (images/engines) with the newest ones in Debian's archives,
# security archives included. Exit code 1 where a newer one is out: read its changelog, try it (make test-engines), write the new
# version into images/engines, and build new images. Needs apt; runs as any user.
#
# Not part of .ci/run: a new package must not make a change red that has nothing to do with it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
newer=0

# newest SUITE PACKAGE: the version that apt would install, from lists of its own.
newest() {
	local dir=$work/$1
	if [ ! -d "$dir" ]; then
		mkdir -p "$dir"/{lists/partial,cache/archives/partial,parts}
		: >"$dir/status"
		scripts/tool debian-root --print "$1" >"$dir/sources.list"
	fi
	local apt=(-o "Dir::State=$dir" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o "Dir::Etc::sourcelist=$dir/sources.list"
		-o "Dir::Etc::sourceparts=$dir/parts" -o "Acquire::Check-Valid-Until=false" -o "APT::Sandbox::User=")
	apt-get "${apt[@]}" update -qq >"$dir/log" 2>&1 || { cat "$dir/log" >&2; return 1; }
	apt-cache "${apt[@]}" policy "$2" | awk '$1 == "Candidate:" { print $2 }'
}

while read -r suite package tried; do
	case $suite in '' | '#'*) continue ;; esac
	found=$(newest "$suite" "$package")
	if [ "$found" = "$tried" ]; then
		echo "$suite: $package $tried is the newest"
	else
		echo "$suite: $package $found is out; tried was $tried"
		newer=1
	fi
done <images/engines
exit $newer
