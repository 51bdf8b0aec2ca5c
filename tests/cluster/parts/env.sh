# Settings and functions of the kit; sourced by the scripts.
set -euo pipefail
KIT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${VG_CLUSTER_DIR:-$HOME/.cache/vg-cluster}; CACHE=$(mkdir -p "$CACHE" && cd "$CACHE" && pwd)
BIN=$CACHE/bin IMAGES=$CACHE/images CRDS=$CACHE/crds
NAME=${VG_CLUSTER_NAME:-main}                    # several clusters may live side by side
RUN=$CACHE/run/$NAME PKI=$RUN/pki LOG=$RUN/log   # state, removed by `down`
NODE=node1 NODE_IP=10.200.0.2
SVC_CIDR=10.96.0.0/16 API_SVC=10.96.0.1 DNS_SVC=10.96.0.10
POD_CIDR=10.244.0.0/16 POD_NET=10.244.0.0/24
LB_CIDR=172.30.0.0/24
CGROUP=vg-$(printf %s "$RUN" | cksum | cut -d' ' -f1)
export PATH=$BIN:$PATH:/usr/sbin:/sbin
export KUBECONFIG=$RUN/admin.kubeconfig
# the namespaces have no way out: a proxy of the machine is of no use there
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

T0=${EPOCHREALTIME/./}
step() { local us=$(( ${EPOCHREALTIME/./} - T0 )); printf '%4d.%d s  %s\n' $((us / 1000000)) $((us / 100000 % 10)) "$*"; }
die() { echo "${0##*/}: $*" >&2; exit 1; }

# pid of the namespaces' init, if it lives and is ours
holder() { local p; p=$(cat "$RUN/holder.pid" 2>/dev/null) && grep -qsaF "$RUN/holder.sh" "/proc/$p/cmdline" && echo "$p"; }

# in_cluster CMD…: runs CMD in the cluster's net, mount and pid namespaces, in the present folder.
# A process that is inside already (a test that calls the kit) stays there.
in_cluster() {
  if [ "${VG_INSIDE-}" = "$RUN" ]; then "$@"; return; fi
  local p; p=$(holder) || die "no cluster \"$NAME\": run up first"
  VG_INSIDE=$RUN nsenter -t "$p" -m -n -p -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}
# start NAME CMD…: the same in the background, output to NAME.log; `component` ends it and starts it again
start() {
  local n=$1; shift
  mkdir -p "$RUN/components"
  printf '%q ' "$@" >"$RUN/components/$n"
  start_again "$n"
}
start_again() {
  local n=$1
  # shellcheck disable=SC2016 # $$ is the pid in the namespace
  in_cluster setsid bash -c 'echo $$ >"$0.pid"; eval "exec $(cat "$0")"' "$RUN/components/$n" >>"$LOG/$n.log" 2>&1 </dev/null &
}
# wait_for SECONDS WHAT CMD…: until CMD succeeds
wait_for() {
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || die "$what: not within the time; see $LOG"; sleep 0.1; done
}
k() { in_cluster kubectl "$@"; }
