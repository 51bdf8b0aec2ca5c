#!/bin/bash
# strip-debug FILE…: moves debug information of programs and libraries to FILE.debug. Debuggers and backtraces find it there, by its name and checksum.
set -euo pipefail
for file; do
	# What cargo has not linked again since is stripped already.
	readelf --section-headers --wide "$file" | grep -q ' \.debug_info ' || continue
	objcopy --only-keep-debug --compress-debug-sections "$file" "$file.debug"
	chmod 644 "$file.debug"
	# To a new file: cargo's own copy, a hard link, keeps what it has.
	(cd "$(dirname "$file")" && name=$(basename "$file") && objcopy --strip-debug --add-gnu-debuglink="$name.debug" "$name" "$name.stripped" && mv "$name.stripped" "$name")
	echo "$file: $(($(stat -c %s "$file") / 1048576)) MiB, and $(($(stat -c %s "$file.debug") / 1048576)) MiB in $file.debug"
done
