// SPDX-License-Identifier: Apache-2.0
// When data last moved on a channel to a peer process, while its control connection was broken: the process lived
// then, whether or not it could be reached. Pure; `alive` is the service thread's clock.
#pragma once

#include <cstdint>
#include <map>

namespace r2ccl {

class DataMoved {
 public:
  /// A channel to `process` takes a turn; `seen` is its count of progress in the turn before.
  void look(uint64_t process, uint64_t& seen, uint64_t progress, uint64_t alive) {
    if (progress != seen) at_[process] = alive;
    seen = progress;
  }
  /// 0: never.
  uint64_t at(uint64_t process) const {
    const auto it = at_.find(process);
    return it == at_.end() ? 0 : it->second;
  }

 private:
  std::map<uint64_t, uint64_t> at_;
};

}  // namespace r2ccl
