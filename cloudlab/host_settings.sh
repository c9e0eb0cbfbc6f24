# SPDX-License-Identifier: Apache-2.0
# The settings that a reboot loses, and the checks of this machine's devices. setup.sh reads this file, and
# defines `fine`, `changed`, `note`, `lacks`, `put` and the parameters. Each function checks first, and changes
# only what differs.
# shellcheck shell=bash disable=SC2154

sys=$root/sys

extra_modules() {  # Ubuntu keeps rdma_rxe and others in a package beside the kernel's
  local package
  package=linux-modules-extra-$(uname -r)
  if [[ $mode != all ]] || skipped packages || ! apt-cache show "$package" >/dev/null 2>&1; then return 1; fi
  env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$package" >>"$state/packages.log" 2>&1 || return 1
  changed "packages: $package"
}

load_modules() {
  local module
  for module in "$@"; do
    if [[ -d $sys/module/${module//-/_} ]]; then fine "module $module"; continue; fi
    if modprobe "$module" 2>/dev/null; then changed "module $module loaded"
    elif extra_modules && modprobe "$module" 2>/dev/null; then changed "module $module loaded"
    else lacks "module $module" "modprobe $module (is linux-modules-extra-$(uname -r) installed?)"; fi
  done
}

kernel_settings() {
  # Several ports of one machine may receive the same ARP request: each answers for its own address only.
  put /etc/sysctl.d/90-r2ccl.conf <<'EOF'
net.ipv4.conf.all.arp_ignore=1
net.ipv4.conf.default.arp_ignore=1
net.ipv4.conf.all.arp_announce=2
net.ipv4.conf.default.arp_announce=2
net.ipv4.conf.all.rp_filter=0
net.ipv4.conf.default.rp_filter=0
EOF
  local setting
  while IFS= read -r setting; do set_now "$setting"; done <"$root/etc/sysctl.d/90-r2ccl.conf"
}

set_now() {  # net.ipv4.conf.all.x=1, at once; silent unless it cannot be had
  local path=/proc/sys/${1%%=*} value=${1#*=}
  [[ $1 == */* ]] || path=${path//./\/}
  [[ $(cat "$path" 2>/dev/null) == "$value" ]] && return
  { printf '%s\n' "$value" >"$path"; } 2>/dev/null || lacks "sysctl $1" "sysctl -w $1"
}

interface_with() {  # the interface that has this address
  ip -o -4 addr show 2>/dev/null | awk -v want="$1" '{split($4, part, "/"); if (part[1] == want) {print $2; exit}}'
}

interface_of_mac() {  # 0c42a1dd5802, as Emulab writes it
  local path
  for path in /sys/class/net/*; do
    [[ $(tr -d : <"$path/address" 2>/dev/null) == "$1" ]] && { basename "$path"; return; }
  done
  return 0
}

# One /24 per port: with two ports in one network the kernel may send one port's packets through the other.
one_rail() {
  local rail=$1 address=10.10.$1.$((node + 1)) interface mac
  interface=$(interface_with "$address")
  if [[ -z $interface && -r $root/var/emulab/boot/ifmap ]]; then
    mac=$(awk -v want="$address" '$2 == want {print tolower($3)}' "$root/var/emulab/boot/ifmap")
    [[ -z $mac ]] || interface=$(interface_of_mac "$mac")
    if [[ -n $interface ]]; then
      ip addr add "$address/24" dev "$interface"
      changed "rail $rail: $address/24 on $interface, as Emulab's ifmap says"
    fi
  fi
  if [[ -z $interface ]]; then
    lacks "rail $rail" "no interface has $address; ip addr add $address/24 dev INTERFACE, or reboot: CloudLab sets it at boot"
    return
  fi
  rail_interfaces+=("$interface")
  [[ $(cat "/sys/class/net/$interface/operstate") == up ]] || { ip link set "$interface" up; changed "rail $rail: $interface up"; }
  local setting prefix
  for setting in arp_ignore=1 arp_announce=2 rp_filter=0; do set_now "net/ipv4/conf/$interface/$setting"; done
  prefix=$(ip -o -4 addr show dev "$interface" | awk -v want="$address" 'index($4, want "/") == 1 {sub(/.*\//, "", $4); print $4}')
  if [[ $prefix == 24 ]]; then fine "rail $rail: $interface, $address/24, MTU $(cat "/sys/class/net/$interface/mtu")"
  else lacks "rail $rail" "$interface has $address/$prefix, not /24: ip addr del $address/$prefix dev $interface; ip addr add $address/24 dev $interface"; fi
  limit_rate "$rail" "$interface"
}

# udev applies these files to each interface that appears, at boot perhaps after this script: Ubuntu's sets
# rp_filter=2 on all of them. A file that names the interface comes before one that says '*'.
rails_as_they_appear() {
  ((${#rail_interfaces[@]})) || return 0
  printf -- '-net/ipv4/conf/%s\n' "${rail_interfaces[@]/%//arp_ignore=1}" "${rail_interfaces[@]/%//arp_announce=2}" "${rail_interfaces[@]/%//rp_filter=0}" |
    put /etc/sysctl.d/91-r2ccl-rails.conf
}

# The NIC's own rate limit, per traffic class. Host tc does not see RDMA traffic.
limit_rate() {
  local rail=$1 interface=$2 now want=${rate}Gbit
  ((rate > 0)) || return 0
  if ! command -v dcb >/dev/null; then lacks "rate of rail $rail" "apt-get install iproute2 (dcb is missing)"; return; fi
  now=$(dcb maxrate show dev "$interface" tc-maxrate 2>/dev/null || true)
  if [[ -n $now && $(grep -o '[0-7]:[0-9.]*[A-Za-z]*' <<<"$now" | sed 's/^.://' | sort -u) == "$want" ]]; then
    fine "rail $rail: $want in each traffic class"
  elif dcb maxrate set dev "$interface" tc-maxrate "all:$want" 2>/dev/null; then
    changed "rail $rail: $want in each traffic class"
  else
    lacks "rate of rail $rail" "dcb maxrate set dev $interface tc-maxrate all:$want (does the driver of $interface know it? mlnx_qos -i $interface -r $rate,$rate,$rate,$rate,$rate,$rate,$rate,$rate)"
  fi
}

pci_devices() {  # VENDOR CLASS_PREFIX: addresses
  local path
  for path in "$sys"/bus/pci/devices/*; do
    [[ -e $path/class && $(cat "$path/class") == $2* ]] || continue
    [[ -z $1 || $(cat "$path/vendor") == "$1" ]] && basename "$path"
  done
  return 0
}

# CloudLab's images have no GPU driver; only the steps with GPUs need it.
gpu_driver() {
  local said
  [[ -n $(pci_devices 0x10de 0x03) ]] || return 0
  if ! command -v nvidia-smi >/dev/null; then
    lacks_beside "driver of the GPUs" "apt-get install ubuntu-drivers-common && ubuntu-drivers install --gpgpu (Debian: nvidia-driver of non-free), then reboot"
  elif said=$(nvidia-smi -L 2>&1) && grep -q '^GPU' <<<"$said"; then
    fine "driver of the GPUs: $(grep -c '^GPU' <<<"$said")"
  else
    lacks_beside "driver of the GPUs" "modprobe nvidia, or reboot; is its module built for $(uname -r) (dkms status)? nvidia-smi says: $(head -n 1 <<<"$said")"
  fi
}

pytorch() {  # some GB: not installed unasked
  local folder=$repository/build/torch
  [[ -n $(pci_devices 0x10de 0x03) ]] || return 0
  if command -v torchrun >/dev/null || [[ -x $folder/bin/torchrun ]]; then fine "PyTorch"
  else note "PyTorch is missing; only the step exec_torchrun needs it: python3 -m venv $folder && $folder/bin/pip install torch"; fi
}

# With access control services (ACS), a bridge sends a NIC's writes to a GPU up to the root port and back.
acs_off() {
  local bridge value count=0 here=0
  if [[ -z $(pci_devices 0x10de 0x03) ]]; then note "ACS: no NVIDIA GPU, so no device writes to another device"; return; fi
  command -v setpci >/dev/null || { lacks ACS "apt-get install pciutils"; return; }
  for bridge in $(pci_devices '' 0x0604); do
    value=$(setpci -s "$bridge" ECAP_ACS+6.w 2>/dev/null) || continue
    here=$((here + 1))
    [[ $value == 0000 ]] && continue
    if setpci -s "$bridge" ECAP_ACS+6.w=0000 2>/dev/null && [[ $(setpci -s "$bridge" ECAP_ACS+6.w) == 0000 ]]; then count=$((count + 1))
    else lacks "ACS of $bridge" "setpci -s $bridge ECAP_ACS+6.w=0000, or switch ACS off in the BIOS"; fi
  done
  if ((count)); then changed "ACS switched off on $count of $here bridges"; else fine "ACS is off on $here bridges"; fi
}

# In DPU mode a BlueField forwards the host's packets on its own processor; in NIC mode it does not, and an OVS
# rule on it has no effect.
bluefields() {
  local device found='' query offload tool
  for device in $(pci_devices 0x15b3 0x02); do
    case $(cat "$sys/bus/pci/devices/$device/device") in 0xa2d2 | 0xa2d6 | 0xa2dc) ;; *) continue ;; esac
    found=yes
    [[ $device == *.0 ]] || continue  # one line per card
    tool=$(command -v mlxconfig || command -v mstconfig || true)
    if [[ -z $tool ]]; then lacks "mode of the BlueField $device" "apt-get install mstflint"; continue; fi
    query=$("$tool" -d "$device" query INTERNAL_CPU_MODEL INTERNAL_CPU_OFFLOAD_ENGINE 2>/dev/null || true)
    offload=$(awk '$1 == "INTERNAL_CPU_OFFLOAD_ENGINE" {print $2} $2 == "INTERNAL_CPU_OFFLOAD_ENGINE" {print $3}' <<<"$query")
    case $offload in
      ENABLED*) note "BlueField $device is in DPU mode: OVS on its Arm side forwards" ;;
      DISABLED*) note "BlueField $device is in NIC mode: an OVS rule on it has no effect (DPU mode: $tool -d $device set INTERNAL_CPU_MODEL=1 INTERNAL_CPU_OFFLOAD_ENGINE=0, then a power cycle)" ;;
      *) note "BlueField $device does not tell its mode ($(basename "$tool") -d $device query)" ;;
    esac
  done
  if [[ $type == r7525 && -z $found ]]; then
    lacks BlueField-2 "this r7525 has none any more, so it has no ports of 100 Gbit/s: terminate, and ask for another node"
  fi
}

soft_roce() {
  local interface
  load_modules rdma_rxe
  for interface in "${rail_interfaces[@]}"; do
    if rdma link show 2>/dev/null | grep -q " netdev $interface\b"; then fine "soft RoCE on $interface"
    elif rdma link add "rxe_$interface" type rxe netdev "$interface" 2>/dev/null; then changed "soft RoCE on $interface"
    else lacks "soft RoCE on $interface" "rdma link add rxe_$interface type rxe netdev $interface"; fi
  done
}

rdma_ports() {
  local interface
  for interface in "${rail_interfaces[@]}"; do
    if [[ -d $sys/class/net/$interface/device/infiniband ]]; then fine "$interface is the port of $(ls "$sys/class/net/$interface/device/infiniband")"
    else lacks "RDMA device of $interface" "modprobe mlx5_ib; rdma link (or take the fabric rxe)"; fi
  done
}

host_settings() {
  local rail
  rail_interfaces=()
  kernel_settings
  for ((rail = 0; rail < (nodes > 1 ? rails : 0); rail++)); do one_rail "$rail"; done
  rails_as_they_appear
  case $fabric in
    verbs) load_modules ib_uverbs rdma_ucm; rdma_ports; acs_off; bluefields ;;
    rxe) load_modules ib_uverbs; soft_roce ;;
    vhca) note "fabric vhca: virtual NICs, nothing to set" ;;
  esac
  gpu_driver
  pytorch
}
