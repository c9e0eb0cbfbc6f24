// SPDX-License-Identifier: Apache-2.0
// What happens at the pause points (pause_point.h) of the source files that a test includes after this.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>

namespace vhca::test {

// Any thread may come by a point while another one is at its own.
struct Pause {
  std::atomic<const char*> name{""};  // written after the body; whoever takes it has the body
  std::function<void()> body;
};
inline Pause& pause() {
  static Pause instance;
  return instance;
}

// The next time that somebody comes by the point: once.
inline void at_next(const char* name, std::function<void()> body) {
  pause().body = std::move(body);
  pause().name.store(name);
}

inline void pause_at(const char* name) {
  const char* next = pause().name.load();
  if (std::strcmp(name, next) != 0 || !pause().name.compare_exchange_strong(next, "")) return;
  const std::function<void()> body = std::move(pause().body);
  body();
}

}  // namespace vhca::test

#define VHCA_PAUSE_POINT(name) ::vhca::test::pause_at(#name)
