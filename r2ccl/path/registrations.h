// SPDX-License-Identifier: Apache-2.0
// The process's registered buffers, each on every NIC that may carry it, shared by all channels.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/path/buffer_memory.h"
#include "r2ccl/path/process_context.h"

namespace r2ccl {

class Registrations {
 public:
  explicit Registrations(ProcessContext& context) : context_(context) {}
  /// Registers [data, data + bytes), or counts one more user of the same range of the same memory, on every
  /// NIC that takes it, all at once; one that does not, or whose driver does not answer, carries nothing of
  /// this process any more. In mode 0 only `home_nic` needs it. Error kMemoryLock, kVerbs or kSystem.
  Result<Registration*> add(void* data, size_t bytes, const BufferMemory& memory, int home_nic);
  /// One user less; the last one takes the registration away.
  Result<void> remove(Registration* registration);

 private:
  /// Which memory it is. Two descriptors of one dma-buf have the same inode; the registration keeps that
  /// alive.
  struct Identity {
    BufferMemory::Kind kind = BufferMemory::Kind::kHost;
    uintptr_t first = 0, last = 0;
    uint64_t device = 0, inode = 0, offset = 0;
    int home_nic = -1;  // in mode 0, where only that one has it: nobody reads keys that another one writes
    auto operator<=>(const Identity&) const = default;
  };
  static Result<Identity> identity(void* data, size_t bytes, const BufferMemory& memory);
  /// What each NIC was asked for, and what those that refused have said.
  struct Attempts;
  using Refusals = std::vector<std::optional<Error>>;
  Result<Attempts> ask_nics(const Registration& registration, void* data, size_t bytes,
                            const BufferMemory& memory, int home_nic);
  Refusals take_answers(Registration& registration, const Attempts& attempts);
  void leave_nics(const Refusals& refused);
  Result<void> fill(Registration& registration, void* data, size_t bytes, const BufferMemory& memory,
                    int home_nic);
  void empty(const std::shared_ptr<Registration>& registration);

  ProcessContext& context_;
  std::mutex mutex_;
  using Ranges = std::map<Identity, std::shared_ptr<Registration>>;
  Ranges ranges_;
  std::unordered_map<const Registration*, Ranges::iterator> places_;  ///< of each in ranges_
};

}  // namespace r2ccl
