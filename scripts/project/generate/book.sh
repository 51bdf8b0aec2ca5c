#!/bin/bash
# The book: docs/, by mdBook, into target/book. mdBook is built once, into the user's cache.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varnish-gateway/mdbook

# Without its server, and hardly optimised: it is built in a minute or two.
[ -x "$cache/bin/mdbook" ] ||
	CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo install --quiet --locked --no-default-features --features search --version '^0.4' --root "$cache" mdbook
"$cache/bin/mdbook" build docs
echo target/book/index.html
