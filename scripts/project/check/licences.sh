#!/usr/bin/env bash
# Licences, bans and sources of dependencies. Advisories come from a database on the network: `scripts/check licences advisories`
# where it can be reached.
set -euo pipefail
cd "$(dirname "$0")/../../.."
command -v cargo-deny >/dev/null || cargo install --locked --quiet --version '^0.20' cargo-deny
if [ $# -gt 0 ]; then
  exec cargo deny check "$@"
fi
exec cargo deny --offline check licenses bans sources
