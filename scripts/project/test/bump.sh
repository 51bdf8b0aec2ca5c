#!/bin/bash
# The next version after a given one, as scripts/bump -patch, -minor and -major write it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
code=0
while read -r now part expected; do
	next=$(scripts/bump --next "$part" "$now")
	[ "$next" = "$expected" ] || { echo "scripts/test bump: $part of $now is $next, not $expected" >&2; code=1; }
done <<'END'
0.1.0 patch 0.1.1
0.1.9 minor 0.2.0
0.9.9 major 1.0.0
1.2.0-rc.1 patch 1.2.0
1.2.0-rc.1 minor 1.2.0
1.2.1-rc.1 minor 1.3.0
2.0.0-rc.1 major 2.0.0
2.1.0-rc.1 major 3.0.0
END
if scripts/bump --next build 0.1.0 >/dev/null 2>&1 || scripts/bump -build >/dev/null 2>&1; then
	echo "scripts/test bump: a part that does not exist is accepted" >&2
	code=1
fi
exit $code
