// SPDX-License-Identifier: Apache-2.0
// What a channel knows of its other end: what the peer said of itself first, and what it has said of its NICs
// since. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "r2ccl/base/result.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

/// Can two ends that greet each other so work together? The error says what differs.
inline Result<void> agree(const wire::Hello& ours, const wire::Hello& theirs) {
  const std::string here(ours.host, strnlen(ours.host, sizeof ours.host));
  const std::string there =
      theirs.host[0] ? std::string(theirs.host, strnlen(theirs.host, sizeof theirs.host)) : "the peer";
  if (theirs.magic != wire::kHandleMagic)
    return Error{ErrorCode::kBadHandle, there + " does not speak R2CCL's protocol"};
  if (theirs.version != ours.version)
    return Error{ErrorCode::kVersionMismatch, there + " speaks wire version " +
                                                  std::to_string(theirs.version) + ", " + here + " speaks " +
                                                  std::to_string(ours.version)};
  if (theirs.mode != ours.mode)
    return Error{ErrorCode::kModeMismatch, there + " runs R2CC_MODE=" + std::to_string(theirs.mode) + ", " +
                                               here + " runs R2CC_MODE=" + std::to_string(ours.mode)};
  if ((theirs.strict_ack != 0) != (ours.strict_ack != 0))
    return Error{
        ErrorCode::kModeMismatch,
        there + " runs R2CC_STRICT_ACK=" + std::to_string(theirs.strict_ack) + ", " + here + " the opposite"};
  if (theirs.ring_lines != ours.ring_lines || theirs.requests != ours.requests || theirs.nics == 0 ||
      theirs.nics > wire::kMaxNics || theirs.home_nic >= theirs.nics)
    return Error{ErrorCode::kVersionMismatch,
                 there + " has other limits (requests, ring, NICs) than this plugin"};
  return {};
}

/// What the peer is told of a NIC of this end that carries nothing any more.
constexpr wire::NicState state_of_lost(bool port_down) {
  return port_down ? wire::NicState::kDown : wire::NicState::kLeft;
}

class Peer {
 public:
  /// A sender knows from the beginning where its peer listens.
  void listens(const control::Endpoint& where) { hello_.where = where; }
  /// It has said who it is.
  void greeted(const wire::Hello& hello) {
    hello_ = hello;
    hello_.host[sizeof hello_.host - 1] = '\0';
    for (auto& name : hello_.nic_names) name[sizeof name - 1] = '\0';
  }
  /// One of its NICs is left or came back; known_nic() must hold. `now`: CLOCK_MONOTONIC, ns.
  void nic_changed(const wire::Nic& change, uint64_t now) {
    nics_[change.nic] = {change.state != wire::NicState::kUp, change.state == wire::NicState::kLeft, now};
  }

  uint64_t process() const { return hello_.process; }
  uint32_t channel() const { return hello_.channel; }  ///< its number there
  const control::Endpoint& where() const { return hello_.where; }
  uint32_t copied_bytes() const { return hello_.copied_bytes; }
  int nics() const { return hello_.nics; }
  int home_nic() const { return hello_.home_nic; }
  bool known_nic(uint32_t nic) const { return nic < hello_.nics; }
  /// By its host, or where it listens.
  std::string name() const {
    if (hello_.host[0]) return hello_.host;
    return hello_.where.port ? "the peer at " + control::text(hello_.where) : "the peer";
  }
  std::string nic_name(int nic) const { return hello_.nic_names[nic]; }

  bool nic_up(int nic) const { return !nic_down(nic); }
  /// It says that this NIC carries nothing: the port is down, or (`nic_left`) the NIC takes no buffers.
  bool nic_down(int nic) const { return nics_[size_t(nic)].down; }
  bool nic_left(int nic) const { return nics_[size_t(nic)].left; }
  /// When that was heard.
  uint64_t nic_changed_at(int nic) const { return nics_[size_t(nic)].at; }

 private:
  struct Nic {
    bool down = false, left = false;
    uint64_t at = 0;
  };
  wire::Hello hello_{};
  std::array<Nic, wire::kMaxNics> nics_{};
};

}  // namespace r2ccl
