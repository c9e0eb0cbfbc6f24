// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/flows.h"

#include <algorithm>
#include <iterator>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/queues/pacing.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {
namespace {

void open_way(Qp& qp) {
  Fabric& fabric = qp.owner->runtime->fabric();
  const std::uint32_t number = qp.qp_base.qp_num;
  Port& own = fabric.ports[qp.shared->port];
  const std::uint32_t own_percent = percent_of_rate(fabric, own, qp.owner->runtime->memory_node());
  qp.write_flows[0] = open_flow(own.tx, number, own_percent);
  qp.own_latency_ns = own.latency_ns;
  const std::uint32_t peer_port = qp.shared->peer_port.load();
  if (qp.shared->type == IBV_QPT_UD || peer_port == kNoPort) return;
  Port& peer = fabric.ports[peer_port];
  const std::uint32_t peer_percent =
      percent_of_rate(fabric, peer, memory_node_of_owner(fabric, qp.shared->peer_number.load()));
  qp.write_flows[1] = open_flow(peer.rx, number, peer_percent);
  qp.peer_latency_ns = peer.latency_ns;
  if (!qp.is_reliable()) return;
  qp.read_flows[0] = open_flow(peer.tx, number, peer_percent);
  qp.read_flows[1] = open_flow(own.rx, number, own_percent);
}

}  // namespace

void close_flows(Qp& qp) {
  for (Flow* flows : {qp.write_flows, qp.read_flows})
    for (int side = 0; side < 2; ++side) {
      cancel_rest(flows[side], now_ns());
      close_flow(flows[side]);
    }
  for (DatagramFlow& to : qp.datagram_flows) {
    cancel_rest(to.flow, now_ns());
    close_flow(to.flow);
  }
  qp.datagram_flows.clear();
}

void open_flows(Qp& qp) {
  close_flows(qp);
  open_way(qp);
  set_window(qp);
}

std::uint16_t datagram_flow(Qp& qp, std::uint32_t port, std::uint32_t number) {
  Fabric& fabric = qp.owner->runtime->fabric();
  Port& there = fabric.ports[port];
  const std::uint32_t percent = percent_of_rate(fabric, there, memory_node_of_owner(fabric, number));
  const auto is_it = [&](const DatagramFlow& f) { return f.port == port && f.percent == percent; };
  const auto flow =
      std::find_if(qp.datagram_flows.begin(), qp.datagram_flows.end(), is_it) - qp.datagram_flows.begin();
  if (flow == std::ssize(qp.datagram_flows)) {
    qp.datagram_flows.push_back({port, percent, open_flow(there.rx, qp.qp_base.qp_num, percent)});
    set_window(qp);
  }
  return static_cast<std::uint16_t>(flow);
}

}  // namespace vhca
