#!/bin/bash
# helm: the one of this machine, if it is 3.14 or newer; else one that Go builds, once, into ${VG_CLUSTER_DIR:-~/.cache/vg-cluster}.
#
#   scripts/tool helm --path         says where it is
#   scripts/tool helm WORDS…         runs it
set -euo pipefail
version=v4.3.1
own=${VG_CLUSTER_DIR:-$HOME/.cache/vg-cluster}/bin/helm

find_helm() {
	local found number
	if found=$(command -v helm); then
		number=$("$found" version --template '{{.Version}}' 2>/dev/null || true)
		number=${number#v}
		if [ "$(printf '%s\n' 3.14 "$number" | sort -V | head -n 1)" = 3.14 ]; then
			echo "$found"
			return
		fi
	fi
	if [ ! -x "$own" ]; then
		command -v go >/dev/null || {
			echo "scripts/tool helm: neither helm nor Go is installed: install helm 3.14 or newer, or Go 1.26 or newer" >&2
			exit 1
		}
		mkdir -p "${own%/*}"
		echo "scripts/tool helm: building helm $version, once" >&2
		(
			exec 9>"$own.lock"
			flock 9
			[ ! -x "$own" ] || exit 0
			made=$(mktemp -d "$own.XXXX")
			trap 'rm -rf "$made"' EXIT
			GOBIN=$made CGO_ENABLED=0 GOFLAGS=-mod=mod go install -trimpath -ldflags '-s -w' "helm.sh/helm/v4/cmd/helm@$version"
			mv "$made/helm" "$own"
		)
	fi
	echo "$own"
}

helm=$(find_helm)
[ "${1:-}" != --path ] || { echo "$helm"; exit 0; }
exec "$helm" "$@"
