#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the machine of reboots.py does at each boot in place of CloudLab's start-up service: systemd starts it, as it
# starts r2ccl-node.service, whenever it likes.
#
#   reboots.sh REPOSITORY
#
# Its last line on ttyS1 is 'again' (the machine is to boot once more), 'done' or 'FAILED: …'.
set -uo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
there=$1
state=/var/lib/r2ccl-node log=/var/log/r2ccl stage_file=/var/lib/reboots-stage
exec >/dev/ttyS1 2>&1 </dev/null
mkdir -p "$log"
stage=$(cat "$stage_file" 2>/dev/null || echo 1)
say() { printf 'boot %d, %4d s  %s\n' "$stage" "$(cut -d . -f 1 /proc/uptime)" "$*"; }
end() {  # LAST LINE
  sync
  printf '%s\n' "$1"
  if [[ $1 == again ]]; then systemctl reboot; else systemctl poweroff; fi
  exit 0
}
fail() {
  say "$*"
  systemctl --no-pager status r2ccl-node r2ccl-reproduce 2>&1 | head -n 60
  tail -n 40 /var/log/r2ccl-node.log /var/log/r2ccl-reproduce.log "$state"/paper/logs/* 2>/dev/null
  end "FAILED: $*"
}
wait_for() {  # SECONDS WHAT COMMAND…
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < until)) || fail "$what: not in time"
    sleep 1
  done
}
of_unit() { systemctl show --value -p "$2" "$1"; }  # UNIT PROPERTY
is_state() { [[ $(of_unit "$1" ActiveState) == "$2" ]]; }
is_not_state() { ! is_state "$@"; }
has_process() { [[ $(of_unit "$1" MainPID) != 0 ]]; }
set_up() {  # LOG WORDS…: as profile.py calls it
  local file=$log/$1
  shift
  # shellcheck disable=SC2024  # this script is root's anyway
  sudo -H --preserve-env=R2CCL_AUTORUN_STEPS,R2CCL_AUTORUN_WORDS bash "$there/cloudlab/setup.sh" "$@" >"$file" 2>&1 ||
    { cat "$file"; fail "set-up is not complete: $*"; }
}
unchanged() { ! grep '^changed' "$log/$1" || fail "$1: set-up changed something"; }
unit_has_run() {  # in this boot, by systemd, to a good end
  wait_for 600 'r2ccl-node.service has run' is_state r2ccl-node active
  [[ $(of_unit r2ccl-node SubState)/$(of_unit r2ccl-node Result)/$(of_unit r2ccl-node ExecMainStatus) == exited/success/0 ]] || fail 'r2ccl-node.service did not end well'
  (($(of_unit r2ccl-node ExecMainStartTimestampMonotonic) > 0)) || fail 'r2ccl-node.service was not started'
  say "r2ccl-node.service began at $(($(of_unit r2ccl-node ExecMainStartTimestampMonotonic) / 1000000)) s and took $((($(of_unit r2ccl-node ExecMainExitTimestampMonotonic) - $(of_unit r2ccl-node ExecMainStartTimestampMonotonic)) / 1000)) ms"
}
nothing_of_the_job() { ! pgrep -f 'reproduce\.sh|bin/r2bench'; }
has_begun() { (($(grep -c '==> nic_down' /var/log/r2ccl-reproduce.log) == $1)); }  # so many times
steps=(--node 0 --nodes 1 --rails 0 --fabric vhca --scenario nic_down --autorun 1)
# Times × 16: the machine is emulated.
export R2CCL_AUTORUN_STEPS='--only nic_down --short' R2CCL_AUTORUN_WORDS='--slow-motion 16'
rails=(--type d6515 --node 0 --nodes 2 --rails 2 --rate 0 --fabric rxe --scenario nic_down --autorun 0)

first_boot() {
  set_up first.txt "${rails[@]}"
  grep -qx 'changed  r2ccl-node.service is enabled: it runs at each boot' "$log/first.txt" || { cat "$log/first.txt"; fail 'the unit was not enabled'; }
  [[ $(systemctl is-enabled r2ccl-node) == enabled ]] || fail 'systemd does not know that the unit is enabled'
  say 'set up, the unit is enabled'
}

settings() {  # of two rails with soft RoCE, all lost in a reboot
  local rail interface
  udevadm settle  # it applies sysctl's files to each interface, sooner or later
  for rail in 0 1; do
    interface=$(ip -o -4 addr show | awk -v want="10.10.$rail.1/24" '$4 == want {print $2}')
    [[ -n $interface && $(tr -d : <"/sys/class/net/$interface/address") == $(awk -v want="10.10.$rail.1" '$2 == want {print $3}' /var/emulab/boot/ifmap) ]] ||
      { ip addr; fail "rail $rail has not its address on its port"; }
    rdma link show | grep -q "state ACTIVE .*netdev $interface\b" || { rdma link show; fail "rail $rail has no active soft RoCE"; }
    [[ $(cat "/proc/sys/net/ipv4/conf/$interface/"{arp_ignore,arp_announce,rp_filter} | tr '\n' ' ') == '1 2 0 ' ]] ||
      { head "/proc/sys/net/ipv4/conf/$interface/"{arp_ignore,arp_announce,rp_filter}; fail "rail $rail has not its ARP settings"; }
  done
  [[ $(cat /proc/sys/net/ipv4/conf/{all,default}/{arp_ignore,arp_announce,rp_filter} | tr '\n' ' ') == '1 2 0 1 2 0 ' ]] || fail 'the ARP settings of all interfaces are missing'
  [[ -d /sys/module/ib_uverbs && -d /sys/module/rdma_rxe ]] || fail 'a module is missing'
  [[ $(systemctl show --value -p DefaultLimitMEMLOCK) == infinity ]] || fail 'services may lock little memory'
  [[ $(ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new node0 ulimit -l) == unlimited ]] || fail 'whoever logs in over ssh may lock little memory'
}

second_boot() {
  [[ ! -e /run/reboots-early ]] || fail "the node called itself ready before r2ccl-node.service had run: $(cat /run/reboots-early)"
  unit_has_run
  [[ -e /run/r2ccl-node/ready ]] || fail 'the node is not ready'
  (($(grep -cE '^changed  (rail [01]: 10.10.[01].1/24 on|module rdma_rxe loaded|soft RoCE on)' /var/log/r2ccl-node.log) == 5)) || fail 'r2ccl-node.service did not set everything again'
  settings
  set_up second.txt "${rails[@]}"
  set_up second_boot.txt --boot
  unchanged second.txt
  unchanged second_boot.txt
  say 'all settings are there again; set-up twice more, nothing changed'

  # Killed in the middle: the next start is a good one.
  systemctl restart --no-block r2ccl-node
  wait_for 60 'r2ccl-node.service runs' has_process r2ccl-node
  systemctl kill -s KILL r2ccl-node
  wait_for 60 'r2ccl-node.service has failed' is_state r2ccl-node failed
  systemctl restart r2ccl-node || fail 'r2ccl-node.service does not start after SIGKILL'
  unit_has_run
  settings

  set_up autorun.txt "${steps[@]}"
  is_state r2ccl-reproduce active || fail 'autorun has not started reproduce.sh'
  wait_for 300 'the first step begins' has_begun 1
  local first
  first=$(of_unit r2ccl-reproduce MainPID)
  set_up autorun_again.txt "${steps[@]}"
  [[ $(of_unit r2ccl-reproduce MainPID) == "$first" ]] || fail 'a second autorun has started reproduce.sh again'
  grep -q 'reproduce.sh runs already' "$log/autorun_again.txt" || { cat "$log/autorun_again.txt"; fail 'a second autorun does not say that reproduce.sh runs'; }
  say 'autorun has begun, once'
  wait_for 300 'ranks run' pgrep -f r2bench-cpu-rank
  kill -9 "$first"
  wait_for 120 'r2ccl-reproduce.service has failed' is_state r2ccl-reproduce failed
  wait_for 30 'nothing of the job is left' nothing_of_the_job
  # shellcheck disable=SC2010
  ! ls /dev/shm | grep -E '^(r2|vhca|faultinject)' || fail 'the killed job left shared memory'
  set_up autorun_after_kill.txt "${steps[@]}"
  is_state r2ccl-reproduce active || fail 'autorun does not start reproduce.sh after SIGKILL'
  wait_for 300 'ranks run' pgrep -f r2bench-cpu-rank
  say 'after SIGKILL nothing was left, and autorun has begun again; the machine reboots in the middle'
}

third_boot() {
  set_up autorun_third.txt "${steps[@]}"
  unit_has_run
  is_state r2ccl-reproduce active || fail 'autorun has not started reproduce.sh after the reboot'
  wait_for 300 'the step begins again' has_begun 3
  wait_for 2400 'reproduce.sh ends' grep -q 'steps passed, .*; results in' /var/log/r2ccl-reproduce.log
  wait_for 60 'r2ccl-reproduce.service ends' is_not_state r2ccl-reproduce active
  [[ $(of_unit r2ccl-reproduce ExecMainStatus) =~ ^[01]$ ]] || fail 'reproduce.sh could not run'  # 1: an expectation of time was missed
  cat /var/log/r2ccl-reproduce.log
  set_up autorun_done.txt "${steps[@]}"
  wait_for 300 'what is done is not done again' grep -q 'nic_down .*done already' /var/log/r2ccl-reproduce.log
  [[ -z $(systemctl list-units --failed --no-legend 'r2ccl-node*') ]] || fail 'a unit of ours has failed'
}

case $stage in
  1) first_boot ;;
  2) second_boot ;;
  3) third_boot; end 'done' ;;
esac
echo $((stage + 1)) >"$stage_file"
end again
