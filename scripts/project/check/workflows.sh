#!/bin/bash
# Checks .github/workflows with actionlint, which Go builds once into ${VG_CLUSTER_DIR:-~/.cache/vg-cluster}, unless the machine has it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
version=v1.7.12
lint=$(command -v actionlint || echo "${VG_CLUSTER_DIR:-$HOME/.cache/vg-cluster}/bin/actionlint")
if [ ! -x "$lint" ]; then
	command -v go >/dev/null || { echo "scripts/check workflows: neither actionlint nor Go is installed" >&2; exit 1; }
	echo "scripts/check workflows: building actionlint $version, once" >&2
	mkdir -p "${lint%/*}"
	GOBIN=${lint%/*} CGO_ENABLED=0 GOFLAGS=-mod=mod go install -trimpath "github.com/rhysd/actionlint/cmd/actionlint@$version"
fi
exec "$lint" -no-color .github/workflows/*.yml
