// SPDX-License-Identifier: Apache-2.0
// What happens at the pause points (pause_point.h) of the source files that a test includes after this.
#pragma once

#include <cstring>
#include <functional>

namespace vhca::test {

struct Pause {
  const char* name = "";
  std::function<void()> body;
};
inline Pause& pause() {
  static Pause instance;
  return instance;
}

// The next time that somebody comes by the point: once.
inline void at_next(const char* name, std::function<void()> body) { pause() = {name, std::move(body)}; }

inline void pause_at(const char* name) {
  if (std::strcmp(name, pause().name) != 0) return;
  const std::function<void()> body = std::move(pause().body);
  pause() = {};
  body();
}

}  // namespace vhca::test

#define VHCA_PAUSE_POINT(name) ::vhca::test::pause_at(#name)
