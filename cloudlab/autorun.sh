#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs on the first node after its set-up. Waits until all nodes are ready, then starts reproduce.sh, which
# continues when this script ends.
#
#   autorun.sh NODES vhca|verbs|rxe SCENARIO|paper [RAILS]
#
# Exit status: 0 reproduce.sh runs, now or already; 1 a node is not ready in time, 64 wrong command line.
# For a short test: R2CCL_AUTORUN_STEPS (options of reproduce.sh in place of the scenario's steps) and
# R2CCL_AUTORUN_WORDS (additional options of each 'r2bench run').
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
if (($# < 3 || $# > 4)) || [[ ! $1 =~ ^[1-9][0-9]*$ || ! $2 =~ ^(vhca|verbs|rxe)$ || ! ${4:-0} =~ ^[0-9]+$ ]]; then
  printf 'autorun.sh: usage: autorun.sh NODES vhca|verbs|rxe SCENARIO|paper [RAILS], not: %s\n' "${*:-nothing}" >&2
  exit 64
fi
nodes=$1 fabric=$2 scenario=$3 rails=${4:-0}
state=${R2CCL_SETUP_ROOT:-}/var/lib/r2ccl-node
out=$state/paper
words=(--out "$out")
[[ $fabric == vhca ]] || words+=(--fabric verbs)  # soft RoCE over the ports is a device of the machine as well
if [[ -n ${R2CCL_AUTORUN_STEPS:-} ]]; then read -ra steps <<<"$R2CCL_AUTORUN_STEPS"; words+=("${steps[@]}")
elif [[ $scenario != paper ]]; then words+=(--only "$scenario" --only "speed_$scenario" --only "${scenario}_10_faults"); fi
read -ra further <<<"${R2CCL_AUTORUN_WORDS:-}"

if [[ $fabric != vhca ]]; then
  hosts=node0
  for ((node = 1; node < nodes; node++)); do hosts+=,node$node; done
  further+=(--launcher mpi --hosts "$hosts")
  ((nodes <= 2)) || further+=(--set "fabric.nodes=$nodes")  # the steps on real NICs have two
  ((rails == 0)) || further+=(--set "fabric.nics_per_node=$rails")
fi
((${#further[@]} == 0)) || words+=(-- "${further[@]}")

runs_already() {
  if [[ ! -e $out/lock ]] || flock -n "$out/lock" true; then return 1; fi
  printf 'reproduce.sh runs already, with results in %s\n' "$out"
}
! runs_already || exit 0  # the start-up service calls set-up at each boot

unready() {  # NODE: why; fails if it is ready. The file is gone after a reboot, until set-up has run again
  local status=0
  ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=accept-new "node$1" test -e /run/r2ccl-node/ready 2>"$state/ssh.log" || status=$?
  case $status in
    0) return 1 ;;
    1) printf 'its set-up has not ended, or lacks something (node%d: sudo %s/setup.sh --status)' "$1" "$here" ;;
    *) printf 'it does not run, or root may not log in there: %s' "$(tail -n 1 "$state/ssh.log" | tr -d '\r')" ;;
  esac
}
patience=${R2CCL_WAIT_SECONDS:-5400} waits=()
for ((node = 1; node < nodes; node++)); do waits+=("$node"); done
while ((${#waits[@]})); do
  left=() reasons=()
  for node in "${waits[@]}"; do
    if why=$(unready "$node"); then left+=("$node") reasons+=("node$node is not ready after $patience s: $why"); fi
  done
  waits=("${left[@]}")
  ((${#waits[@]})) || break
  if ((SECONDS >= patience)); then
    printf 'autorun.sh: %s\n' "${reasons[@]}" "when all are: sudo $0 $*" >&2
    exit 1
  fi
  sleep "${R2CCL_WAIT_STEP:-10}"
done
! runs_already || exit 0
if [[ -d /run/systemd/system && -z ${R2CCL_SETUP_ROOT:-} ]]; then
  systemctl reset-failed r2ccl-reproduce 2>/dev/null || true
  systemd-run --quiet --unit r2ccl-reproduce -p LimitMEMLOCK=infinity -p StandardOutput=append:/var/log/r2ccl-reproduce.log \
    -p StandardError=inherit "$here/reproduce.sh" "${words[@]}"
  printf 'reproduce.sh runs: tail -f /var/log/r2ccl-reproduce.log\n'
else
  setsid "$here/reproduce.sh" "${words[@]}" >"$state/reproduce.log" 2>&1 </dev/null &
  printf 'reproduce.sh runs: tail -f %s\n' "$state/reproduce.log"
fi
