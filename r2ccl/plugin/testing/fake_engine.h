// SPDX-License-Identifier: Apache-2.0
// A host engine that does what the test wants: it adds nothing up over any network, but remembers what it was
// asked for, and answers from its knobs.
#pragma once

#include <cstring>
#include <vector>

#include "r2ccl/collective/host/engine.h"
#include "r2ccl/plugin/testing/fake_net.h"

namespace r2ccl::collective {

class GroupListener {
 public:
  int device = -1;
  uint64_t communicator = 0;
};
class Group {
 public:
  int rank = -1;
  size_t ranks = 0;
};
class Operation {
 public:
  TestOutcome outcome;
};

class FakeEngine : public Engine {
 public:
  static FakeEngine& instance();

  Result<GroupListener*> listen(int device, void* handle, uint64_t communicator) override {
    if (fail) return *fail;
    std::memset(handle, 0x11, kHandleBytes);
    listener = {device, communicator};
    return &listener;
  }
  Result<Group*> connect(GroupListener*, std::span<void* const> handles, int rank) override {
    if (fail) return *fail;
    if (!joins) return static_cast<Group*>(nullptr);
    group = {rank, handles.size()};
    return &group;
  }
  bool reduces(DataType type, Reduction) const override { return type != DataType::kFloat8e5m2; }
  Result<Registration*> reg(Group*, void*, size_t) override {
    ++registrations;
    return &registration;
  }
  Result<void> dereg(Group*, Registration*) override {
    --registrations;
    return {};
  }
  Result<Operation*> all_reduce(Group*, const void* sent, void* received, size_t count, DataType type,
                                Reduction reduction, Registration*, Registration*) override {
    return begin(sent, received, count, type, reduction);
  }
  /// Every rank has what this one has.
  Result<Operation*> all_gather(Group* of, const void* sent, void* received, size_t count, DataType type,
                                Registration*, Registration*) override {
    if (ready && !fail) {
      for (size_t rank = 0; rank < of->ranks; ++rank)
        std::memcpy(static_cast<char*>(received) + rank * count, sent, count);
    }
    return begin(sent, received, count, type, Reduction::kSum);
  }
  /// Every other rank has nothing.
  Result<Operation*> reduce_scatter(Group* of, const void* sent, void* received, size_t count, DataType type,
                                    Reduction reduction, Registration*, Registration*) override {
    const size_t bytes = count * bytes_of(type);
    if (ready && !fail)
      std::memcpy(received, static_cast<const char*>(sent) + size_t(of->rank) * bytes, bytes);
    return begin(sent, received, count, type, reduction);
  }
  Result<TestOutcome> test(Operation* tested) override {
    if (fail) return *fail;
    return tested->outcome;
  }
  Result<void> close(Group* closing) override {
    closed_groups += closing == &group;
    registrations_at_close = registrations;
    return {};
  }
  Result<void> close(GroupListener* closing) override {
    closed_listeners += closing == &listener;
    return {};
  }

  void reset() { *this = FakeEngine(); }

  bool ready = true, joins = true;
  const Error* fail = nullptr;
  int registrations = 0, registrations_at_close = -1, closed_groups = 0, closed_listeners = 0, begun = 0;
  const void* last_sent = nullptr;
  void* last_received = nullptr;
  size_t last_count = 0;
  DataType last_type = DataType::kInt8;
  Reduction last_reduction = Reduction::kSum;
  GroupListener listener;
  Group group;
  Operation operation;
  Registration registration;

 private:
  Result<Operation*> begin(const void* sent, void* received, size_t count, DataType type,
                           Reduction reduction) {
    if (fail) return *fail;
    if (!ready) return static_cast<Operation*>(nullptr);
    ++begun;
    last_sent = sent;
    last_received = received;
    last_count = count;
    last_type = type;
    last_reduction = reduction;
    return &operation;
  }
};

}  // namespace r2ccl::collective
