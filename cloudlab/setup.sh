#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares a node of the CloudLab profile, or any Debian or Ubuntu machine: packages, build, limits,
# addresses, and settings that a reboot loses. Changes only what differs, so it may run any number of times.
# Each line of its report says what it found or changed.
#
#   setup.sh [--type T] [--node N --nodes N --rails N] [--rate GBITS] [--fabric verbs|rxe|vhca]
#            [--scenario NAME|paper] [--autorun 0|1] [--skip packages,build,unit]
#                        an option that is not given keeps its value from the last run
#   setup.sh --boot      restores the settings that a reboot loses, with the options of the last run
#                        (r2ccl-node.service)
#   setup.sh --status    prints the report of the last run
#
# Exit status: 0 nothing is missing, 1 something is missing (the report says what, and the command that fixes
# it), 64 wrong command line, 70 it could not continue.
set -euo pipefail

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
repository=$(dirname -- "$here")
root=${R2CCL_SETUP_ROOT:-}  # tests: where /etc, /var and /sys lie
state=$root/var/lib/r2ccl-node
ready=$root/run/r2ccl-node/ready  # gone after a reboot, until all is set again
unit=r2ccl-node.service

type=unknown node=0 nodes=1 rails=0 rate=0 fabric=vhca scenario=paper autorun=0 skip='' mode=all

say() { printf '%s\n' "$*"; }
explain() { sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
usage() { sed -n '/^#   setup.sh/,/^set /{s/^# \{0,1\}//p}' "$0" >&2; [[ -z ${1:-} ]] || printf 'setup.sh: %s\n' "$1" >&2; exit 64; }

# --- report -------------------------------------------------------------------------------------------

report=''
missing=0 unready=0
record() { report+="$1"$'\n'; say "$1"; }
fine() { record "ok       $*"; }
changed() { record "changed  $*"; }
note() { record "note     $*"; }
lacks() { unready=$((unready + 1)); lacks_beside "$@"; }
lacks_beside() { missing=$((missing + 1)); record "missing  $1: $2"; }  # the scenarios run without it

finish() {
  mkdir -p "$state" "${ready%/*}"
  printf '%s' "$report" >"$state/report"
  if ((unready == 0)); then date -u +%Y-%m-%dT%H:%M:%SZ >"$ready"; else rm -f "$ready"; fi
  say "$((missing)) missing, $(grep -c '^changed' <<<"$report" || true) changed"
}

put() {  # FILE: standard input becomes its content; says whether anything changed
  local file=$root$1 new
  new=$(cat; printf x)
  if [[ -e $file && $(cat "$file"; printf x) == "$new" ]]; then fine "$1"; return; fi
  mkdir -p "$(dirname "$file")"
  printf '%s' "${new%x}" >"$file.new"
  mv "$file.new" "$file"
  changed "$1"
}

skipped() { [[ ,$skip, == *,$1,* ]]; }

# --- once ---------------------------------------------------------------------------------------------

# Tools that list and test NICs; the launcher does not install them.
tools=(rdma-core ibverbs-utils ibverbs-providers perftest iproute2 ethtool pciutils mstflint python3)

finish_packages() {  # a reboot in the middle of an installation leaves what apt-get refuses to go on with
  local until=$((SECONDS + 600))
  compgen -G "$root/var/lib/dpkg/updates/[0-9]*" >/dev/null || return 0  # apt-get's own sign of it
  until env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >"$state/packages.log" 2>&1; do
    if ! grep -q 'lock was locked\|dpkg.* lock' "$state/packages.log" || ((SECONDS >= until)); then  # or it is another process that is at it
      lacks packages "dpkg --configure -a (what it said: $state/packages.log)"
      return
    fi
    sleep "${R2CCL_WAIT_STEP:-5}"
  done
  changed 'packages: dpkg --configure -a, after an interruption'
}

install_tools() {
  local absent
  ((nodes < 2)) || tools+=(openmpi-bin openssh-client)
  [[ -z $(pci_devices 0x10de 0x03) ]] || tools+=(openmpi-bin libopenmpi-dev git make python3-venv)  # nccl-tests, PyTorch
  if ! command -v dpkg-query >/dev/null; then lacks packages "not Debian or Ubuntu; install by hand what ${tools[*]} are there"; return; fi
  mapfile -t absent < <(comm -23 <(printf '%s\n' "${tools[@]}" | sort) \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${tools[@]}" 2>/dev/null | sed -n 's/ installed$//p' | sort))
  if ((${#absent[@]} == 0)); then fine "packages: ${tools[*]}"; return; fi
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600)
  if { "${apt[@]}" install -y --no-install-recommends "${absent[@]}" ||
       { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${absent[@]}"; }; } >"$state/packages.log" 2>&1; then
    changed "packages: ${absent[*]}"
  else
    lacks "packages ${absent[*]}" "apt-get update && apt-get install ${absent[*]} (what it said: $state/packages.log)"
  fi
}

build() {  # as the owner of the repository, so that its owner can build again
  local owner
  owner=$(stat -c %U "$repository")
  if command -v git >/dev/null && ! git config --system --get-all safe.directory 2>/dev/null | grep -Fxq "$repository"; then
    git config --system --add safe.directory "$repository"
  fi
  local as=()
  [[ $owner == root || $owner == UNKNOWN ]] || as=(sudo -H -u "$owner")
  # Without root, the launcher installs packages through sudo, which every CloudLab user may use.
  if "${as[@]}" "$repository/r2bench" build >"$state/build.log" 2>&1; then
    fine "build: $repository/build/release"
  else
    lacks build "$repository/r2bench build (what it said: $state/build.log)"
  fi
  mkdir -p "$repository/results/runs"
  chmod a+rwx "$repository/results/runs" "$repository/build" 2>/dev/null || true
}

limits() {
  put /etc/security/limits.d/90-r2ccl.conf <<'EOF'
# RDMA locks the memory that it uses.
* soft memlock unlimited
* hard memlock unlimited
root soft memlock unlimited
root hard memlock unlimited
EOF
  put /etc/systemd/system.conf.d/90-r2ccl.conf <<'EOF'
[Manager]
DefaultLimitMEMLOCK=infinity
EOF
}

install_unit() {
  put "/etc/systemd/system/$unit" <<EOF
[Unit]
Description=What a reboot forgets on a node of the R2CCL profile: addresses, rate limits, ACS, soft RoCE
Wants=network-online.target
After=network-online.target openibd.service rdma-load-modules@rdma.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$here/setup.sh --boot
StandardOutput=append:/var/log/r2ccl-node.log
StandardError=inherit

[Install]
WantedBy=multi-user.target
EOF
  local wants=$root/etc/systemd/system/multi-user.target.wants/$unit
  [[ -n $root || ! -d /run/systemd/system ]] || systemctl daemon-reload  # its text may have changed
  if [[ -L $wants ]]; then fine "$unit is enabled"; return; fi
  mkdir -p "$(dirname "$wants")"
  ln -s "/etc/systemd/system/$unit" "$wants"
  changed "$unit is enabled: it runs at each boot"
}

# --- arguments ----------------------------------------------------------------------------------------

keys=(type node nodes rails rate fabric scenario autorun)
if [[ -r $state/parameters ]]; then  # of the last time; only --autorun itself starts the scenarios
  while IFS='=' read -r key value; do
    [[ " ${keys[*]} " == *" $key "* ]] && printf -v "$key" %s "$value"
  done <"$state/parameters"
  autorun=0
fi

while (($#)); do
  case $1 in
    --boot) mode=boot ;;
    --status) mode=status ;;
    --type | --node | --nodes | --rails | --rate | --fabric | --scenario | --autorun | --skip)
      [[ $# -ge 2 && -n $2 && $2 != --* ]] || usage "$1 needs a value"
      case $1 in --node | --nodes | --rails | --rate) [[ $2 =~ ^[0-9]{1,4}$ ]] || usage "$1 takes a number, not '$2'" ;; esac
      printf -v "${1#--}" %s "$2"
      shift ;;
    -h | --help) explain ;;
    *) usage "unknown word '$1'" ;;
  esac
  shift
done
[[ $fabric == verbs || $fabric == rxe || $fabric == vhca ]] || usage "--fabric is verbs, rxe or vhca, not '$fabric'"
[[ $scenario =~ ^[A-Za-z0-9_.-]+$ && $type =~ ^[A-Za-z0-9_.-]+$ ]] || usage "--scenario and --type are names"
[[ $autorun == 0 || $autorun == 1 ]] || usage "--autorun is 0 or 1"
((node < nodes)) || usage "node $node of $nodes: they count from 0"

if [[ $mode == status ]]; then
  [[ -r $state/report ]] || { say "setup.sh has not run here yet"; exit 1; }
  cat "$state/report"
  ! grep -q '^missing' "$state/report" || exit 1
  exit 0
fi
((EUID == 0)) || { printf 'setup.sh: changes the machine: run it as root (sudo %s)\n' "$0" >&2; exit 70; }
mkdir -p "$state"
exec 9>"$state/lock"
flock 9  # CloudLab's start-up service and the unit may come at once

if [[ $mode == boot && ! -r $state/parameters ]]; then
  printf 'setup.sh --boot: the parameters of an earlier run are missing; run setup.sh once without --boot\n' >&2
  exit 70
fi

# shellcheck source=cloudlab/host_settings.sh
. "$here/host_settings.sh"

if [[ $mode == all ]]; then
  for key in "${keys[@]}"; do printf '%s=%s\n' "$key" "${!key}"; done | put /var/lib/r2ccl-node/parameters
  skipped packages || { finish_packages; install_tools; }
  skipped build || build
  limits
  skipped unit || install_unit
fi
host_settings
finish
exec 9>&-

if [[ $mode == all && $autorun == 1 && $node == 0 ]]; then
  "$here/autorun.sh" "$nodes" "$fabric" "$scenario" "$rails" || exit 1
fi
((missing == 0))
