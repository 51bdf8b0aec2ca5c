#!/bin/bash
# Runs every command and validates every YAML and VCL of docs/ and the README, against a real `serve` and in a real cluster.
#
#   scripts/test docs                     all; brings a cluster up, and takes it down
#   scripts/test docs --no-cluster        without pages that need a cluster, and without the API server's word on YAML
#   scripts/test docs [--no-cluster] docs/getting-started.md …     these pages
#
# KEEP=1 leaves the cluster up, and takes one that is up; FAST=1 builds images with the profile `fast`; NO_BUILD=1 takes those that are there. Needs root.
# CONTRIBUTING.md says how pages mark their blocks.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. scripts/project/cluster.sh
scripts/setup docs
case " $* " in
*" --no-cluster "*) PYTHONPATH=scripts exec /usr/bin/python3 -B -m project.pages.run "$@" ;;
esac

own_cluster "scripts/test docs" test-docs
$kit/build
scripts/tool helm --path >/dev/null
[ -n "${NO_BUILD:-}" ] || scripts/images ${FAST:+--fast}
guard_cluster
[ -n "${KEEP:-}" ] || $kit/down
$kit/kubectl version >/dev/null 2>&1 || $kit/up
$kit/install
PYTHONPATH=scripts /usr/bin/python3 -B -m project.pages.run "$@"
