#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What one of the two nodes of two_nodes.py does when it has booted, in the order of CloudLab: the control
# network is there, then the start-up service runs set-up.
#
#   two_nodes.sh NODE REPOSITORY RAILS
#
# The second node then waits for whoever logs in. The first runs nic_down on both, and draws the figures;
# its exit status counts. What is looked at later lies in /var/log/r2ccl and /var/lib/r2ccl-node/paper.
set -uo pipefail
node=$1 there=$2 rails=$3
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
log=/var/log/r2ccl state=/var/lib/r2ccl-node
mkdir -p "$log" /run/sshd
say() { printf '%5d s  %s\n' "$SECONDS" "$*"; }
fail() { say "FAILED: $*"; exit 1; }

ln -s /proc/self/fd /dev/fd  # there is no udev
mount -t tmpfs tmpfs /tmp    # no FIFO can be made on a folder of the host
printf 'node%d\n' "$node" >/proc/sys/kernel/hostname
ip addr add "192.168.77.$((node + 1))/24" dev eth0
ip link set eth0 up
/usr/sbin/sshd || fail 'no sshd'

setup=("$there/cloudlab/setup.sh" --node "$node" --nodes 2 --rails "$rails" --fabric rxe --scenario nic_down)
set_up() {  # LOG WORDS…
  local file=$log/$1
  shift
  "$@" >"$file" 2>&1 || { cat "$file"; fail "not complete: $*"; }
}
set_up first.txt "${setup[@]}"
for ((rail = 0; rail < rails; rail++)); do
  grep -q "^changed  rail $rail: 10.10.$rail.$((node + 1))/24 on eth" "$log/first.txt" || { cat "$log/first.txt"; fail "rail $rail was not given its address"; }
done
(($(grep -c '^changed  soft RoCE on eth' "$log/first.txt") == rails)) || { cat "$log/first.txt"; fail 'not every rail has got soft RoCE'; }
(($(rdma link show | grep -c 'state ACTIVE') == rails)) || { rdma link show; fail 'not every rail has an active RDMA port'; }
say "set up: soft RoCE on $rails rails"
set_up second.txt "${setup[@]}"
set_up boot.txt "$there/cloudlab/setup.sh" --boot
! grep '^changed' "$log/second.txt" "$log/boot.txt" || fail 'a later set-up changed something'
say 'set up twice more, nothing changed'
if ((node > 0)); then while sleep 3600; do :; done; fi

until ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=accept-new node1 test -e /run/r2ccl-node/ready; do
  ((SECONDS < 1200)) || fail 'node1 is not ready'
  sleep 2
done
timeout 600 "$there/build/release/bin/r2bench" doctor --cluster --host node0,node1 --json >"$log/cluster.json" 2>"$log/cluster.err" ||
  { cat "$log/cluster.err"; say 'the preflight found something missing'; }
say 'preflight of both nodes, through ssh'

# Times × 16: soft RoCE in an emulated machine is that much slower than the scenario's NICs.
R2CCL_AUTORUN_STEPS='--only nic_down --short' R2CCL_AUTORUN_WORDS='--slow-motion 16' R2CCL_WAIT_STEP=2 R2CCL_WAIT_SECONDS=1200 \
  "$there/cloudlab/autorun.sh" 2 rxe nic_down "$rails" || fail 'autorun has not started'
say 'both nodes are ready'
until [[ -e $state/paper/lock ]]; do sleep 1; done
flock "$state/paper/lock" true  # as long as reproduce.sh runs
cat "$state/reproduce.log"
say 'reproduce.sh has ended'
grep -q 'steps passed, .*; results in' "$state/reproduce.log" || { tail -n 40 "$state"/paper/logs/*; fail 'reproduce.sh has not come to its end'; }
