#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs on the first node after its set-up. Waits until all nodes are ready, then starts reproduce.sh, which
# continues when this script ends.
#
#   autorun.sh NODES vhca|verbs|rxe SCENARIO|paper [RAILS]
#
# Exit status: 0 reproduce.sh runs, 1 a node is not ready in time, 64 wrong command line.
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
words=(--out "${R2CCL_SETUP_ROOT:-}/var/lib/r2ccl-node/paper")
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

deadline=$((SECONDS + ${R2CCL_WAIT_SECONDS:-5400}))
for ((node = 1; node < nodes; node++)); do
  until ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=accept-new "node$node" test -e /var/lib/r2ccl-node/ready 2>"$state/ssh.log"; do
    if ((SECONDS >= deadline)); then
      printf 'autorun.sh: node%d is not ready after %d minutes, or root may not log in there: %s\n' "$node" $((${R2CCL_WAIT_SECONDS:-5400} / 60)) "$(tail -n 1 "$state/ssh.log")" >&2
      exit 1
    fi
    sleep "${R2CCL_WAIT_STEP:-10}"
  done
done
if [[ -d /run/systemd/system && -z ${R2CCL_SETUP_ROOT:-} ]]; then
  systemctl reset-failed r2ccl-reproduce 2>/dev/null || true
  systemd-run --quiet --unit r2ccl-reproduce -p LimitMEMLOCK=infinity -p StandardOutput=append:/var/log/r2ccl-reproduce.log \
    -p StandardError=inherit "$here/reproduce.sh" "${words[@]}"
  printf 'reproduce.sh runs: tail -f /var/log/r2ccl-reproduce.log\n'
else
  setsid "$here/reproduce.sh" "${words[@]}" >"$state/reproduce.log" 2>&1 </dev/null &
  printf 'reproduce.sh runs: tail -f %s\n' "$state/reproduce.log"
fi
