#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the rxe fabric's guest. Mounts the host's root read-only, runs the one job that QEMU hands over, and
# ends the virtual machine with the job's exit status. Only busybox is here; the job runs in the host's root.
#
# The job is a shell script in fw_cfg (opt/r2bench/job). It is first read with the functions below defined, and calls
# them: `share TAG PATH` mounts a folder of the host for writing, `host NAME ADDRESS` gives a name to an address,
# `barrier` says on ttyS1 that this guest is up and waits for a line, `job COMMAND…` runs the command on ttyS1.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

finish() {  # the status as one byte to port 0xe9, where QEMU keeps it; then isa-debug-exit
  $B sync
  printf "\\$(printf %03o "$1")" | $B dd of=/dev/port bs=1 seek=233 2>/dev/null
  printf x | $B dd of=/dev/port bs=1 seek=244 2>/dev/null
  $B reboot -f
}
fail() {
  echo "guest: $*"
  echo "guest: $*" >/dev/ttyS1
  finish 125
}

while read -r module; do
  $B insmod "/modules/$module.ko" || fail "the module $module cannot be loaded"
done </modules/order

mkdir_() { $B mkdir -p "$1" || fail "$1 cannot be made"; }
mount_() { $B mount "$@" || fail "mount $* failed"; }
nine=trans=virtio,version=9p2000.L,msize=262144
mount_ -t 9p -o "$nine,ro,cache=loose" root /host
for place in proc sys dev; do mount_ -o bind "/$place" "/host/$place"; done
mount_ -t tmpfs tmpfs /host/run
$B mkdir -p /dev/shm /dev/pts
mount_ -t tmpfs tmpfs /host/dev/shm
mount_ -t devpts devpts /host/dev/pts
ulimit -l unlimited
ulimit -n 65536
$B ip link set lo up
# The tick of a ksoftirqd that waits its turn (2-8 ms) would else stand in every latency.
for process in /proc/[0-9]*; do
  read -r name <"$process/comm" 2>/dev/null || continue
  case $name in ksoftirqd*) $B chroot /host chrt -f -p 1 "${process#/proc/}" || true ;; esac
done

share() { mount_ -t 9p -o "$nine,rw,cache=none" "$1" "/host$2"; }
host() {
  [ -e /hosts ] || { $B cat /host/etc/hosts >/hosts; mount_ -o bind /hosts /host/etc/hosts; }
  echo "$2 $1" >>/hosts
}
barrier() {
  exec 4<>/dev/ttyS1  # what comes while nobody has it open is lost
  $B stty -onlcr -echo <&4
  printf '\035' >&4
  read -r _ <&4
}
job() {
  $B stty -F /dev/ttyS1 -onlcr -echo
  # When the leader of the terminal's session ends, what is not sent yet is lost: stty waits for it (TCSADRAIN).
  $B setsid -c $B sh -c 'trap : INT; /bin/busybox chroot /host "$@"; r=$?; /bin/busybox stty onlcr; exit $r' job "$@" \
    </dev/ttyS1 >/dev/ttyS1 2>&1
  finish $?
}
. /sys/firmware/qemu_fw_cfg/by_name/opt/r2bench/job/raw
fail "the job's script ended without a job"
