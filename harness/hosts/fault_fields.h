// SPDX-License-Identifier: Apache-2.0
// The fields of a fault's specification, state and witnesses, for hosts that are other machines.
#pragma once

#include "faultinject/control/fault_board.h"

namespace faultinject {

template <typename Visitor>
void describe(Visitor& visit, QpSelector& s) {
  visit("kind", s.kind);
  visit("index", s.index);
}

template <typename Visitor>
void describe(Visitor& visit, Target& t) {
  visit("node", t.node);
  visit("nic", t.nic);
  visit("port", t.port);
  visit("qp", t.qp);
  visit("peer_node", t.peer_node);
  visit("peer_nic", t.peer_nic);
  visit("text", t.text);
}

template <typename Visitor>
void describe(Visitor& visit, Trigger& t) {
  visit("kind", t.kind);
  visit("after", t.after);
  visit("since_first_op", t.since_first_op);
  visit("event", t.event);
  visit("value", t.value);
  visit("count", t.count);
  visit("probability", t.probability);
  visit("fault", t.fault);
  visit("until", t.until);
  visit("phase_up_to", t.phase_up_to);
}

template <typename Visitor>
void describe(Visitor& visit, RateStep& s) {
  visit("bits_per_s", s.bits_per_s);
  visit("lasts", s.lasts);
}

template <typename Visitor>
void describe(Visitor& visit, RealChange& r) {
  visit("loss", r.loss);
  visit("bridge", r.bridge);
  visit("via", r.via);
  visit("cut", r.cut);
  visit("mend", r.mend);
  visit("check", r.check);
}

template <typename Visitor>
void describe(Visitor& visit, FaultSpec& s) {
  visit("name", s.name);
  std::string kind = s.kind->name;
  visit("kind", kind);
  s.kind = &fault_kind(kind);
  visit("own", s.own);
  visit("written", s.written);
  visit("target", s.target);
  visit("trigger", s.trigger);
  visit("duration", s.duration);
  visit("repeat", s.repeat);
  visit("every", s.every);
  visit("opcodes", s.opcodes);
  visit("count", s.count);
  visit("events", s.events);
  visit("query", s.query);
  visit("receive", s.receive);
  visit("error", s.error);
  visit("status", s.status);
  visit("event", s.event);
  visit("rates", s.rates);
  visit("rate_bits_per_s", s.rate_bits_per_s);
  visit("delay", s.delay);
  visit("real", s.real);
  visit("file", s.file);
  visit("line", s.line);
  visit("column", s.column);
}

template <typename Visitor>
void describe(Visitor& visit, FaultState& s) {
  visit("phase", s.phase);
  visit("armed_ns", s.armed_ns);
  visit("triggered_ns", s.triggered_ns);
  visit("t0_ns", s.t0_ns);
  visit("healed_ns", s.healed_ns);
  visit("witnesses", s.witnesses);
  visit("rounds", s.rounds);
  visit("recent_ns", s.recent_ns);
}

template <typename Visitor>
void describe(Visitor& visit, Witness& w) {
  visit("fault_id", w.fault_id);
  visit("round", w.round);
  visit("time_ns", w.time_ns);
  visit("pid", w.pid);
  visit("rank", w.rank);
  visit("node", w.node);
  visit("nic", w.nic);
  visit("qp_num", w.qp_num);
  visit("effect", w.effect);
  visit("value", w.value);
  visit("what", w.what);
}

}  // namespace faultinject
