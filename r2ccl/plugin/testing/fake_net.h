// SPDX-License-Identifier: Apache-2.0
// A core that does what the test wants, so that the shims can be tested without any device.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "r2ccl/service/net.h"

namespace r2ccl {

class Listener {
 public:
  int device = -1;
};
class Channel {
 public:
  int device = -1;
};
class Registration {
 public:
  void* data = nullptr;
  size_t bytes = 0;
};
class Request {
 public:
  TestOutcome outcome;
};

/// Each call returns what its knob says and counts itself.
class FakeNet : public Net {
 public:
  static FakeNet& instance();

  int devices() const override { return 2; }
  NicProperties properties(int device) const override;
  Result<Listener*> listen(int device, void* handle) override;
  Result<Channel*> connect(int device, void* handle) override;
  Result<Channel*> accept(Listener* listener) override;
  Result<void> close(Listener* listener) override { return closed(listener); }
  Result<void> close(Channel* channel) override { return closed(channel); }
  Result<Registration*> reg(Channel* channel, void* data, size_t bytes, const BufferMemory& memory) override;
  Result<void> dereg(Channel*, Registration* registration) override {
    calls_with_nothing += registration == nullptr;
    return {};
  }
  Result<Request*> isend(Channel* channel, const void* data, size_t bytes, Registration* reg) override;
  Result<Request*> irecv(Channel* channel, void* data, size_t bytes, Registration* reg) override;
  Result<TestOutcome> test(Request* request) override;

  void reset() {
    ready = true;
    fail_ = nullptr;
    before_call = nullptr;
    posted = 0;
    last_bytes = 0;
    last_memory = {};
    calls_with_nothing = 0;
  }
  /// Every call from now on returns this error.
  void fail_with(const Error* error) { fail_ = error; }

  bool ready = true;                  ///< false: connect, accept, isend, irecv answer "call again"
  std::function<void()> before_call;  ///< may throw
  int posted = 0;                     ///< isend and irecv calls that arrived here
  size_t last_bytes = 0;
  BufferMemory last_memory;
  Listener listener;
  Channel channel;
  Registration registration;
  Request request;

  int calls_with_nothing = 0;  ///< to close or to give back

 private:
  Result<void> closed(const void* what) {
    calls_with_nothing += what == nullptr;
    return fail_ ? Result<void>(*fail_) : Result<void>();
  }
  void enter() const {
    if (before_call) before_call();
  }
  const Error* fail_ = nullptr;
};

/// What Net::acquire answers; nullptr: success.
extern const Error* g_acquire_error;

}  // namespace r2ccl
