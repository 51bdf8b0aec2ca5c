#!/bin/bash
# The official conformance suite of the Gateway API, on a real cluster of this machine (tests/cluster), with our images and deploy/.
#
#   scripts/test conformance                   everything that GatewayClass varnish says is supported
#   scripts/test conformance --test NAME       one test, by the suite's short name, whether it is said to be supported or not
#   scripts/test conformance --report          everything, and the official report to docs/results
#
# KEEP=1 leaves the cluster up, and takes one that is up (images are loaded again). FAST=1 builds images with the profile `fast`; NO_BUILD=1 takes those that are there.
# CHANNEL=standard|experimental is that of the Gateway API's CRDs; PROFILES the suite's profiles, by comma.
# DATA_PATH=Auto runs it with that default of dataPath.
# SUITE_FLAGS are more flags for the suite. Exit code: that of the suite. After a failure logs, events and objects are collected.

set -euo pipefail
cd "$(dirname "$0")/../../.."
. scripts/project/cluster.sh
own_cluster "scripts/test conformance" conformance
export CHANNEL=${CHANNEL:-standard}
output=$cache/conformance.log
version=$(sed -n 's/^version = "\(.*\)"/v\1/p' Cargo.toml | head -n 1)

flags=(-gateway-class varnish -conformance-profiles "${PROFILES:-GATEWAY-HTTP,GATEWAY-TLS,GATEWAY-GRPC,GATEWAY-TCP,GATEWAY-UDP}")
case ${1:-} in
'') ;;
--test) flags+=(-run-test "${2:?which test?}") ;;
--report)
	report=docs/results/conformance-$CHANNEL-$version-default-report.yaml
	written=$cache/conformance-report.yaml
	flags+=(-report-output "$written" -organization varnish -project varnish-gateway
		-url https://github.com/varnish/gateway -version "$version"
		-contact https://github.com/varnish/gateway/issues)
	;;
*)
	echo "usage: scripts/test conformance [--test NAME | --report]" >&2
	exit 2
	;;
esac
# A busy machine may need longer than the suite thinks; nothing is slower for it where all is well.
patience="GetTimeout:60;DeleteTimeout:60;RequestTimeout:30;MaxTimeToConsistency:90;ManifestFetchTimeout:60;HTTPRouteMustHaveCondition:180;TLSRouteMustHaveCondition:180"
patience+=";TCPRouteMustHaveCondition:180;UDPRouteMustHaveCondition:180;ListenerSetMustHaveCondition:180;ListenerSetListenersMustHaveConditions:180"
patience+=";GatewayStatusMustHaveListeners:180;GatewayListenersMustHaveConditions:180;RouteMustHaveParents:180;LatestObservedGenerationSet:180;DefaultTestTimeout:180"
flags+=(-timeout-config-overrides "$patience")
# shellcheck disable=SC2206 # words
flags+=(${SUITE_FLAGS:-})

$kit/build
[ -n "${NO_BUILD:-}" ] || scripts/images ${FAST:+--fast}

guard_cluster
rm -f "$output"
if [ -z "${KEEP:-}" ]; then $kit/down; fi
$kit/kubectl version >/dev/null 2>&1 || $kit/up
$kit/install

# The suite asks the GatewayClass for what is supported, unless one test is chosen.
supported=$($kit/kubectl get gatewayclass varnish -o jsonpath='{.status.supportedFeatures[*].name}')
echo "supported: $supported"
[ "${1:-}" != --test ] || flags+=(-supported-features "${supported// /,}")
begin=$SECONDS code=0
$kit/conformance "${flags[@]}" >"$output" 2>&1 || code=$?
count() { grep -cE "^    --- $1: TestConformance/" "$output" || true; }
grep -E '^    --- FAIL: TestConformance/' "$output" || true
passed=$(count PASS) failed=$(count FAIL) skipped=$(count SKIP)
echo "$passed passed, $failed failed, $skipped skipped in $((SECONDS - begin)) s; exit code $code; the suite's output: $output"
[ $code != 0 ] || [ "$passed" != 0 ] || { echo "scripts/test conformance: no test ran" >&2; code=1; }
# A report says what a run gave; the exit code says whether it was one.
if [ $code = 0 ] && [ -n "${report:-}" ]; then
	install -m 644 "$written" "$report"
	echo "$report"
fi
# The end of a log is what people see of a red run: why, and last which.
if [ $code != 0 ]; then
	grep -vE '^ *(=== |--- (PASS|SKIP))' "$output" | tail -n 40 | cut -c 1-600
	grep -E '^ *--- FAIL' "$output" | head -n 20
fi
exit $code
