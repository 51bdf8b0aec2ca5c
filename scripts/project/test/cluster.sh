#!/bin/bash
# The operator against a real API server: builds the tests outside, brings etcd, API server and controller manager up (no node),
# runs the tests where they are reachable, and takes all down again, whatever happens.
#
#   scripts/test cluster           all
#   scripts/test cluster NAME…     those whose name contains one of these
#
# KEEP=1 leaves the control plane up. Needs root. Exit code: that of the tests.

set -euo pipefail
cd "$(dirname "$0")/../../.."
. scripts/project/cluster.sh
own_cluster "scripts/test cluster" operator-tests

$kit/build --control-plane
# --workspace: with the features that `make test` builds, so that nothing is built twice.
cargo test --locked --workspace --test cluster --test api_server --no-run
$kit/down
guard_cluster
$kit/up --control-plane
# ours; the tests may delete and make what they like
for file in deploy/00-prereqs.yaml deploy/02-chaperone-rbac.yaml; do $kit/kubectl apply --server-side -f $file >/dev/null; done
$kit/exec cargo test --locked --offline --workspace --test api_server -- --ignored "$@"
# One at a time: there is one leader in a cluster.
$kit/exec cargo test --locked --offline --workspace --test cluster -- --ignored --test-threads=1 "$@"
