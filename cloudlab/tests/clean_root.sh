#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# set-up, twice in a row, on a root that has nothing but the system's minimum, through to a figure. vhca
# stands in for the NICs, or soft RoCE.
#
#   clean_root.sh debian|ubuntu FOLDER [vhca|rxe|reboots]
#
# FOLDER/root is made anew; exit status 77: it cannot be made here, and why
#
# rxe: set-up installs and builds here, where it has to say that the kernel's part is missing. Then two
# virtual machines have the root and the system's own kernel, each a node of the profile (two_nodes.py).
# reboots: the same, then one virtual machine has it as its disk, systemd starts everything there, and the
# machine reboots (reboots.py).
#
# CLEAN_ROOT_MIRROR: another mirror of packages. The root is removed at the end unless CLEAN_ROOT_KEEP=1.
# CLEAN_ROOT_SUITE: another release (jammy, noble; bookworm).
# CLEAN_ROOT_TESTS='-L unit': with vhca, at the end `./r2bench test` with these options; what was compiled is kept
# in FOLDER/ccache.
# CLEAN_ROOT_BUILD=1: nothing is compiled; the build folder of this machine, which has to be the same
# system, is taken there.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
system=$1 folder=$2 fabric=${3:-vhca}
repository=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
root=$folder/root

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
[[ $fabric == vhca || $fabric == rxe || $fabric == reboots ]] || fail "no fabric is named $fabric"
((EUID == 0)) || skip 'a clean root is made by root'
command -v debootstrap >/dev/null || skip 'debootstrap is missing: apt-get install debootstrap'
if [[ $fabric != vhca ]]; then
  for program in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static zstd:zstd; do
    command -v "${program%:*}" >/dev/null || skip "${program%:*} is missing: apt-get install --no-install-recommends ${program#*:}"
  done
fi
case $system in
  debian) suite=${CLEAN_ROOT_SUITE:-bookworm} mirror=${CLEAN_ROOT_MIRROR:-http://deb.debian.org/debian} components=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
  ubuntu) suite=${CLEAN_ROOT_SUITE:-jammy} mirror=${CLEAN_ROOT_MIRROR:-http://archive.ubuntu.com/ubuntu} components=main,universe keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
  *) fail "no system is named $system" ;;
esac
if [[ $system == ubuntu && ! -r $keyring ]]; then  # Debian has it only in some releases: Ubuntu's own package, known by its hash
  package=ubuntu-keyring_2021.03.26_all.deb sum=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f
  mkdir -p "$folder"
  curl --silent --fail --max-time 60 --output "$folder/$package" "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/$package" ||
    skip "$keyring is missing, and archive.ubuntu.com cannot be reached"
  sha256sum --quiet --check - <<<"$sum  $folder/$package" || fail "$package is not what it was in 2021"
  dpkg -x "$folder/$package" "$folder/keyring"
  keyring=$folder/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg
fi
[[ -r $keyring ]] || skip "$keyring is missing: apt-get install ${system}-archive-keyring"

# Everything below has mounts and processes of its own, which end with this script.
if [[ ${CLEAN_ROOT_INSIDE:-} != 1 ]]; then
  CLEAN_ROOT_INSIDE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi
mount --make-rprivate /
mount -t proc proc /proc  # of this namespace of processes
rm -rf --one-file-system -- "$root"
mkdir -p "$root"
mount --bind "$root" "$root"  # for tests that change the mounts of their own namespace, / has to be a mount
cleanup() { rm -rf --one-file-system -- "$folder"/{vmlinux,initrd.cpio}; umount -R -l "$root" 2>/dev/null || true; [[ ${CLEAN_ROOT_KEEP:-} == 1 ]] || rm -rf --one-file-system -- "$root"; }
trap cleanup EXIT

also=ca-certificates,git,sudo
[[ -z ${CLEAN_ROOT_TESTS:-} ]] || also+=,ccache
[[ ${CLEAN_ROOT_BUILD:-} != 1 ]] || also+=,ccache,libgtest-dev,libbenchmark-dev  # the folder was configured with them
# gpgv beside apt checks what set-up installs; ca-certificates and git are part of CloudLab's images.
script=()
[[ $system != ubuntu || -e /usr/share/debootstrap/scripts/$suite ]] || script=(gutsy)  # an older debootstrap: all of Ubuntu's are this one
debootstrap --variant=minbase --include="$also" --components="$components" --keyring="$keyring" "$suite" "$root" "$mirror" "${script[@]}" \
  >"$folder/debootstrap.log" 2>&1 ||
  { tail -n 3 "$folder/debootstrap.log"; skip "debootstrap cannot make $suite from $mirror"; }
if [[ $system == ubuntu ]]; then
  printf 'deb %s %s main universe\n' "$mirror" "$suite" "$mirror" "$suite-updates" >"$root/etc/apt/sources.list"
fi
[[ ! -e /etc/apt/apt.conf.d ]] || grep -rhi '^Acquire::.*Proxy' /etc/apt/apt.conf.d >"$root/etc/apt/apt.conf.d/90-proxy" 2>/dev/null || true
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
# Devices of its own: whatever goes wrong here, those of this machine are not within reach.
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in 'null 1 3' 'zero 1 5' 'full 1 7' 'random 1 8' 'urandom 1 9' 'tty 5 0'; do
  read -r name major minor <<<"$device"
  mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t sysfs -o ro sysfs "$root/sys"
if [[ ${CLEAN_ROOT_BUILD:-} == 1 ]]; then there=$repository; else there=/local/repository; fi
mkdir -p "$root$there"
CLEAN_ROOT_NAME="clean $(. "$root/etc/os-release"; printf '%s %s' "${NAME%% *}" "$VERSION_ID")"  # as which the result is recorded
export CLEAN_ROOT_NAME
git -C "$repository" ls-files -z | tar -C "$repository" --null -T - -cf - | tar -C "$root$there" -xf -
[[ ${CLEAN_ROOT_BUILD:-} != 1 ]] || tar -C "$repository" --exclude='build/release/clean-*' -cf - build/release | tar -C "$root$there" -xf -  # FOLDER may be one of those

if [[ -n ${CLEAN_ROOT_TESTS:-} ]]; then
  mkdir -p "$folder/ccache" "$root/var/cache/ccache"
  mount --bind "$folder/ccache" "$root/var/cache/ccache"
fi

inside() { chroot "$root" env -i HOME=/root CCACHE_DIR=/var/cache/ccache PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
there_setup="$there"/cloudlab/setup.sh
cut_off() {  # SET-UP…: as by a reboot while it installs packages
  local log="$root/var/log/dpkg.log" before process whole
  before=$(wc -l <"$log") whole=$(realpath "$root")
  inside "$@" >/dev/null 2>&1 &
  until tail -n "+$((before + 1))" "$log" | grep -q ' status half-installed '; do kill -0 $! || fail 'set-up installs nothing'; sleep 0.02; done
  for process in /proc/[0-9]*; do [[ $(readlink "$process/root") != "$whole" ]] || kill -KILL "${process#/proc/}" || true; done
  wait $! || true
  compgen -G "$root/var/lib/dpkg/updates/[0-9]*" >/dev/null || fail 'dpkg was not interrupted'
}
if [[ $fabric != vhca ]]; then
  # What CloudLab's image has besides: its kernel with modules, sshd, and an init.
  inside apt-get update >"$folder/kernel.log" 2>&1 || skip 'apt-get update fails in the new root'
  if [[ $system == debian ]]; then
    kernel=(linux-image-amd64)
  else  # without linux-firmware, which no virtual machine needs
    release=$(inside apt-cache depends linux-image-generic | sed -n 's/.*Depends: linux-image-\(.*-generic\)$/\1/p' | head -n 1)
    kernel=("linux-image-$release" "linux-modules-extra-$release")
  fi
  init=()
  [[ $fabric == rxe ]] || init=(systemd-sysv udev dbus initramfs-tools)
  inside env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${kernel[@]}" openssh-server "${init[@]}" >>"$folder/kernel.log" 2>&1 ||
    { tail -n 5 "$folder/kernel.log"; fail 'the kernel cannot be installed'; }

  printf '=== set-up on a clean %s, where the kernel has no RDMA\n' "$suite"
  setup=("$there_setup" --node 0 --nodes 2 --rails 4 --fabric rxe --scenario nic_down)
  [[ $fabric == rxe ]] || cut_off "${setup[@]}"
  status=0
  inside "${setup[@]}" >"$folder/first.txt" || status=$?
  cat "$folder/first.txt"
  ((status == 1)) || fail "set-up ended with $status, not with 1: rails are missing"
  grep -q '^changed  packages' "$folder/first.txt" || fail 'set-up installed nothing: the root was not clean'
  ! grep '^missing' "$folder/first.txt" | grep -vE '^missing  (rail [0-3]|module (ib_uverbs|rdma_rxe)):' || fail 'more is missing than the rails and the kernel'
  [[ ! -e $root/run/r2ccl-node/ready ]] || fail 'set-up says that the node is ready'
  rm -r "$root/var/lib/r2ccl-node"  # the nodes begin with what is installed
  if [[ $fabric == reboots ]]; then
    grep -qx 'changed  packages: dpkg --configure -a, after an interruption' "$folder/first.txt" || fail 'set-up did not finish what was cut off'
    rm "$root"/etc/systemd/system/{,multi-user.target.wants/}r2ccl-node.service
    "$(dirname -- "$(readlink -f -- "$0")")/reboots.py" "$root" "$there" "$folder" || fail 'the machine that reboots'
    printf 'passed: %s set up by systemd after each reboot, and autorun once\n' "$suite"
    exit 0
  fi
  "$(dirname -- "$(readlink -f -- "$0")")/two_nodes.py" "$root" "$there" "$folder" || fail 'the two nodes'
  printf 'passed: %s from nothing to a figure of two nodes with soft RoCE, set up again and again, nothing changed after the first time\n' "$suite"
  exit 0
fi
setup=("$there_setup" --node 0 --nodes 1 --fabric vhca --scenario nic_down)

printf '=== set-up on a clean %s\n' "$suite"
inside "${setup[@]}" | tee "$folder/first.txt" || { tail -n 30 "$root"/var/lib/r2ccl-node/*.log; fail 'the first set-up is not complete'; }
printf '=== once more\n'
inside "${setup[@]}" | tee "$folder/second.txt" || fail 'the second set-up is not complete'
grep -q '^changed  packages' "$folder/first.txt" || fail 'the first set-up installed nothing: the root was not clean'
! grep '^changed' "$folder/second.txt" || fail 'the second set-up changed something'
inside "$there_setup" --boot >/dev/null || fail 'what the unit runs at boot is not complete'
inside "$there_setup" --status >/dev/null || fail 'the status is not that all is there'
[[ -L $root/etc/systemd/system/multi-user.target.wants/r2ccl-node.service ]] || fail 'the unit is not enabled'

printf '=== a scenario and its figure\n'
status=0
inside "$there"/cloudlab/reproduce.sh --out /var/paper --only nic_down || status=$?
# A busy machine may miss an expectation of time (1); anything else has to work.
((status <= 1)) || { tail -n 30 "$root"/var/paper/logs/*; fail "reproduce.sh ended with $status"; }
"$(dirname -- "$(readlink -f -- "$0")")/paper_result.py" "$root/var/paper" vhca emulated || fail 'the result'
if [[ -n ${CLEAN_ROOT_TESTS:-} ]]; then
  printf '=== ./r2bench test %s\n' "$CLEAN_ROOT_TESTS"
  # shellcheck disable=SC2086  # several words
  inside "$there"/r2bench test $CLEAN_ROOT_TESTS || fail 'a test'
fi
printf 'passed: %s from nothing to a figure, twice set up, nothing changed the second time\n' "$suite"
