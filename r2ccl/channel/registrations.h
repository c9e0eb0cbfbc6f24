// The process's registered buffers, each on every NIC that may carry it, shared by all channels.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "r2ccl/channel/core.h"

namespace r2ccl {

class Registrations {
 public:
  explicit Registrations(Core& core) : core_(core) {}
  /// Registers [data, data + bytes), or counts one more user of the same range, on every NIC that takes it,
  /// all at once; one that does not, or whose driver does not answer, carries nothing of this process any
  /// more. In mode 0 only `home_nic` needs it. Error kMemoryLock or kVerbs.
  Result<Registration*> add(void* data, size_t bytes, int home_nic);
  /// One user less; the last one takes the registration away.
  Result<void> remove(Registration* registration);

 private:
  Result<void> fill(Registration& registration, void* data, size_t bytes, int home_nic);
  void empty(const std::shared_ptr<Registration>& registration);

  Core& core_;
  std::mutex mutex_;
  std::map<std::pair<uintptr_t, uintptr_t>, std::shared_ptr<Registration>> ranges_;
};

}  // namespace r2ccl
