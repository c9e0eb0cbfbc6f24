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

  void opened(Request& request, bool receive) {
    request.thread = this;
    request.receive = receive;
    late_acks_.opened(receive);
  }
  /// It has ended, or is not tested any more. One that another thread has posted does not count.
  void ended(Request& request) {
    if (request.thread == this) late_acks_.ended(request.receive);
    request.thread = nullptr;
  }

  /// It has something open, so that it tests again soon.
  bool may_put_off_ack() const { return late_acks_.any() && acks_ < kMostAcks; }
  void put_off_ack(Channel& channel);
  bool owes_acks() const { return acks_ > 0; }
  /// After a test, if it owes any.
  void look_at_acks(bool done) {
    if (late_acks_.due(done)) write_acks();
  }

 private:
  void write_acks();
  LateAcks late_acks_;
  size_t acks_ = 0;
  std::array<std::weak_ptr<Channel>, kMostAcks> channels_;  // the program may close them
};

}  // namespace r2ccl
