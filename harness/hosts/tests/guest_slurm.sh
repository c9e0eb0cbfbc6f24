#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A guest of two_guests_test.py as a node of a Slurm cluster: munged and slurmd, on the first one slurmctld, too, and a command in an
# allocation of both. Everything ends with the guest.
#
#   guest_slurm.sh FOLDER COMMAND…   FOLDER: both guests' own, with slurm.conf and munge.key; no COMMAND: serves until the other has ended
folder=$1
shift
here=/run/slurm PATIENCE=300 slurmd=
export SLURM_CONF=$here/slurm.conf PATH="$PATH:/usr/sbin:/sbin"
name=$(cat /proc/sys/kernel/hostname)

fail() {
  echo "guest_slurm: $name: $*"
  tail -n 15 $here/*.log
  exit 70
}
wait_for() {  # WHAT COMMAND…
  what=$1 end=$(($(date +%s) + PATIENCE))
  shift
  until "$@"; do
    [ -z "$slurmd" ] || kill -0 "$slurmd" 2>/dev/null || fail 'slurmd has ended'
    [ "$(date +%s)" -lt $end ] || fail "$what: not within $PATIENCE s"
    sleep 1
  done
}

mkdir -p $here/state "$here/spool-$name"
# slurmd does not start without cgroups, though nothing here uses them. It tells their version by systemd's hierarchy.
mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir /sys/fs/cgroup/freezer /sys/fs/cgroup/systemd &&
  mount -t cgroup -o freezer cgroup /sys/fs/cgroup/freezer &&
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd || fail 'cgroups'
cp "$folder/slurm.conf" "$folder/munge.key" $here || fail 'no configuration'
chmod 400 $here/munge.key
munged --force --key-file=$here/munge.key --socket=$here/munge.socket --pid-file=$here/munged.pid --log-file=$here/munged.log \
  --seed-file=$here/munged.seed >$here/munged.said.log 2>&1 || fail 'munged'
wait_for 'munged listens' test -S $here/munge.socket
if [ $# -gt 0 ]; then slurmctld -D >$here/slurmctld.said.log 2>&1 & fi
slurmd -D -N "$name" >$here/slurmd.said.log 2>&1 &
slurmd=$!
if [ $# -eq 0 ]; then
  PATIENCE=3600
  wait_for 'the first guest has ended' test -e "$folder/ended"
  exit 0
fi
both_idle() { [ "$(sinfo -h -N -o %T 2>/dev/null | tr '\n' ' ')" = 'idle idle ' ]; }
wait_for 'both nodes are idle' both_idle
salloc -N2 "$@"
status=$?
: >"$folder/ended"
exit $status
