#!/bin/bash
# Writes deploy/00-prereqs.yaml: the namespace, and our CRDs, which are generated into deploy/crds from the Rust types. And the
# chart's copy of these CRDs.
#
#   scripts/generate prereqs            writes
#   scripts/generate prereqs --check    fails where the file is not what would be written
set -euo pipefail
cd "$(dirname "$0")/../../.."
file=deploy/00-prereqs.yaml
chart=charts/varnish-gateway/crds

text() {
	cat <<-'Y'
		# The operator's namespace and our CRDs. Written by scripts/generate prereqs: do not edit. The CRDs of the Gateway API itself come first,
		# from its own release.
		apiVersion: v1
		kind: Namespace
		metadata:
		  name: varnish-gateway-system
		  labels:
		    app.kubernetes.io/part-of: varnish-gateway
		    pod-security.kubernetes.io/enforce: restricted
	Y
	local crd
	for crd in deploy/crds/*.yaml; do
		echo ---
		sed '/^---$/d' "$crd"
	done
}

case ${1:-} in
'')
	text >"$file"
	rm -rf "$chart"
	cp -R deploy/crds "$chart"
	;;
--check)
	text | diff -u "$file" - || { echo "$file is not up to date: run scripts/generate prereqs" >&2; exit 1; }
	diff -ru deploy/crds "$chart" || { echo "$chart is not up to date: run scripts/generate prereqs" >&2; exit 1; }
	;;
*) echo "usage: scripts/generate prereqs [--check]" >&2; exit 2 ;;
esac
