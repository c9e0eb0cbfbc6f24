#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the network of the rxe fabric: soft RoCE devices of several nodes in one network namespace, on one bridge, so that any NIC
# reaches any other (see harness/fabric/README.md). Changes the machine's routing rules, so use it in a virtual machine, or on a
# machine that nobody else uses. Needs root, iproute2 and the module rdma_rxe.
#
#   rxe_net.sh up NODES NICS             creates devices node0_nic0 …, each on an interface n0k0 with a switch port s0k0
#   rxe_net.sh up-one NODE NICS UPLINK   creates the devices of one node. The interface UPLINK leads to the other nodes, and joins the bridge
#   rxe_net.sh down                      removes them, and restores the routing rule
#   rxe_net.sh shape DEV NETEM…          sets what netem does to all that DEV sends, such as: rate 10mbit, delay 1ms, loss 100%. Without NETEM: nothing
#   rxe_net.sh link DEV up|down          sets an interface or a switch port up or down; up also restores the routes that were lost
set -eu
explain() { sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; }
export PATH="$PATH:/usr/sbin:/sbin"

address() { echo "10.$2.$(($1 / 250)).$(($1 % 250 + 1))"; }
switch_address() { echo "192.168.77.$(($1 + 1))"; }  # of a machine that has one node; its NICs may fail, this does not
table() { echo $((1000 + $1 * 64 + $2)); }

make_net() {  # FIRST_NODE LAST_NODE NICS [UPLINK]
  first=$1 last=$2 nics=$3 uplink=${4:-}
  # A burst of all NICs at once must not be dropped between two of them (1000 packets a core otherwise).
  echo 100000 >/proc/sys/net/core/netdev_max_backlog
  for where in all default; do
    echo 1 >/proc/sys/net/ipv4/conf/$where/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$where/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$where/arp_ignore
    echo 2 >/proc/sys/net/ipv4/conf/$where/arp_announce
    [ ! -e /proc/sys/net/ipv6/conf/$where ] || echo 0 >/proc/sys/net/ipv6/conf/$where/accept_dad
  done
  {
    # A packet to another 'node' of this machine leaves by its NIC: the table of local addresses comes after the NICs' own.
    if ip rule show | grep -q '^0:'; then
      echo "rule add pref 100 lookup local"
      echo "rule del pref 0"
    fi
    echo "link add r2switch type bridge stp_state 0 mcast_snooping 0"
    echo "link set r2switch mtu 4200 up"
    if [ -n "$uplink" ]; then
      echo "link set $uplink mtu 4200 master r2switch up"
      echo "addr add $(switch_address "$first")/24 dev r2switch"
    fi
    each "$first" "$last" "$nics" | while read -r node nic; do
      dev=n${node}k$nic
      # A hardware address of its own on every machine: two that boot alike draw the same random ones.
      echo "link add $dev mtu 4200 address $(printf 02:72:32:%02x:%02x:01 "$node" "$nic") type veth peer name s${node}k$nic mtu 4200 address $(printf 02:72:32:%02x:%02x:02 "$node" "$nic")"
      echo "link set s${node}k$nic master r2switch up"
      echo "addr add $(address "$node" "$nic")/8 dev $dev noprefixroute"
      echo "link set $dev up"
      echo "rule add pref 10 oif $dev lookup $(table "$node" "$nic")"
      echo "route add 10.0.0.0/8 dev $dev src $(address "$node" "$nic") table $(table "$node" "$nic")"
    done
  } | ip -batch -
  each "$first" "$last" "$nics" | while read -r node nic; do
    echo "link add node${node}_nic$nic type rxe netdev n${node}k$nic"
  done | rdma -b -
}

each() {  # FIRST_NODE LAST_NODE NICS: 'NODE NIC' a line
  i=$1
  while [ "$i" -le "$2" ]; do
    j=0
    while [ $j -lt "$3" ]; do
      echo "$i $j"
      j=$((j + 1))
    done
    i=$((i + 1))
  done
}

numbers() {  # n3k1: '3 1'
  echo "$1" | sed -n 's/^[ns]\([0-9][0-9]*\)k\([0-9][0-9]*\)$/\1 \2/p'
}

take_down() {
  for path in /sys/class/infiniband/node*_nic*; do
    [ ! -e "$path" ] || echo "link delete ${path##*/}"
  done | rdma -b - || true
  {
    for path in /sys/class/net/n*k*; do
      [ -e "$path" ] && [ -n "$(numbers "${path##*/}")" ] || continue
      set -- $(numbers "${path##*/}")
      echo "rule del pref 10 oif ${path##*/} lookup $(table "$1" "$2")"
      echo "link del ${path##*/}"
    done
    [ ! -e /sys/class/net/r2switch ] || echo "link del r2switch"
    if ip rule show | grep -q '^100:.*lookup local'; then
      echo "rule add pref 0 lookup local"
      echo "rule del pref 100"
    fi
  } | ip -force -batch - || true
}

case ${1:-} in
  up)
    take_down 2>/dev/null
    make_net 0 $(($2 - 1)) "$3"
    ;;
  up-one)
    take_down 2>/dev/null
    make_net "$2" "$2" "$3" "$4"
    [ "$(cat /proc/sys/kernel/hostname)" != '(none)' ] || echo "node$2" >/proc/sys/kernel/hostname  # a guest has none
    ;;
  down) take_down ;;
  shape)
    dev=$2
    shift 2
    if [ $# -eq 0 ]; then
      tc qdisc del dev "$dev" root 2>/dev/null || true
    else
      tc qdisc replace dev "$dev" root netem limit 100000 "$@"
    fi
    ;;
  link)
    ip link set "$2" "$3"
    case $2$3 in
      n*up)
        set -- $(numbers "$2")
        ip route replace 10.0.0.0/8 dev "n$1k$2" src "$(address "$1" "$2")" table "$(table "$1" "$2")"
        ;;
    esac
    ;;
  -h | --help) explain ;;
  *)
    explain >&2
    exit 64
    ;;
esac
