// SPDX-License-Identifier: Apache-2.0
// What one of NCCL's progress threads has open, and the ACKs that it has put off: protocol/late_acks.h says
// why, and when it writes them. Used by its thread alone.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "r2ccl/channel/request.h"
#include "r2ccl/protocol/late_acks.h"

namespace r2ccl {

class ProgressThread {
 public:
  static constexpr size_t kMostAcks = 16;

  // --- any test or close that this thread makes
  void opened(Request& request, bool receive) {
    request.thread = this;
    request.receive = receive;
    late_acks_.opened(receive);
  }
  /// It is done, has failed, or is tested no more. Another thread may have posted it.
  void ended(Request& request) {
    ProgressThread* const of = request.thread;
    if (of == this)
      late_acks_.ended(request.receive);
    else if (of)
      of->late_acks_.ended_elsewhere(request.receive);
    request.thread = nullptr;
  }

  // --- ACKs
  /// It has something open, so that it tests again soon.
  bool may_put_off_ack() const { return late_acks_.any() && acks_ < kMostAcks; }
  void put_off_ack(Channel& channel);
  bool owes_acks() const { return acks_ > 0; }
  /// After a test, if it owes any.
  void look_at_acks(bool done) {
    if (late_acks_.due(done)) write_acks();
  }
  /// It has closed a channel: perhaps nothing is open any more.
  void closed() {
    if (acks_ > 0 && !late_acks_.any()) write_acks();
  }
  /// Another thread with this one's number begins. Requests may still name this object.
  void begin();

 private:
  void write_acks();
  LateAcks late_acks_;
  size_t acks_ = 0;
  std::array<std::weak_ptr<Channel>, kMostAcks> channels_;  // the program may close them
};

}  // namespace r2ccl
