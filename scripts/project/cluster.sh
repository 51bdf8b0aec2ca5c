# For shell scripts that need a cluster of their own (tests/cluster): sourced, from the root of the checkout.
kit=tests/cluster
cache=${VG_CLUSTER_DIR:-$HOME/.cache/vg-cluster}

# own_cluster PART NAME: the cluster's name. When the script exits, logs are collected if it failed, and the cluster goes down unless KEEP is set.
own_cluster() {
	part=$1
	export VG_CLUSTER_NAME=${VG_CLUSTER_NAME:-$2}
	logs=$cache/failed/$VG_CLUSTER_NAME
}

# Takes a copy of the file $output, if there is one.
end_of_cluster() {
	local code=$?
	if [ $code != 0 ]; then
		rm -rf "$logs"
		if $kit/collect "$logs"; then
			[ -z "${output:-}" ] || cp "$output" "$logs/" 2>/dev/null || true
			echo "$part: failed; logs, events and objects are in $logs" >&2
		fi
	fi
	[ -n "${KEEP:-}" ] || $kit/down
	exit $code
}

# From here on the cluster goes down with the script.
guard_cluster() {
	trap end_of_cluster EXIT
	trap 'exit 130' INT TERM
}
