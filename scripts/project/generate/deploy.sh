#!/bin/bash
# Renders deploy/ from the chart, for those who install without helm.
#
#   scripts/generate deploy            writes
#   scripts/generate deploy --check    fails where a file is not what would be written
#
# 00-prereqs.yaml, the namespace and the CRDs, is scripts/generate prereqs' own.
set -euo pipefail
cd "$(dirname "$0")/../../.."
chart=charts/varnish-gateway
check=
case ${1:-} in
'') ;;
--check) check=yes ;;
*) echo "usage: scripts/generate deploy [--check]" >&2; exit 2 ;;
esac

# What only helm needs is left out. In a fixed order, whatever the file system says.
render() {
	local template
	echo "# Rendered from $chart by scripts/generate deploy: do not edit."
	for template in "$@"; do
		scripts/tool helm template varnish-gateway $chart --namespace varnish-gateway-system --kube-version 1.37.0 --show-only "templates/$template.yaml"
	done | sed -e '/^$/d' -e '/^# Source:/d' -e '/^ *helm\.sh\/chart:/d' -e '/^ *app\.kubernetes\.io\/managed-by: Helm$/d' |
		awk '/^---$/ { if (!begun) next } { begun = 1; print }'
}

code=0
put() {
	local file=deploy/$1
	shift
	if [ -z "$check" ]; then
		render "$@" >"$file.new"
		mv "$file.new" "$file"
	elif ! render "$@" | diff -u "$file" -; then
		code=1
	fi
}
put 01-operator.yaml rbac operator
put 02-chaperone-rbac.yaml chaperone
put 03-gatewayclass.yaml gatewayclass
put 04-users.yaml users
[ $code = 0 ] || echo "deploy/ differs from what the chart gives: run make deploy-render" >&2
exit $code
