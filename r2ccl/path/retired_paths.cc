// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/path/retired_paths.h"

#include <algorithm>
#include <functional>
#include <new>

#include "r2ccl/base/log.h"
#include "r2ccl/protocol/retirement.h"

namespace r2ccl {

void RetiredPaths::retire(PathPtr&& path, uint64_t keep_until) {
  retired_.push_back(std::move(path));
  retired_.back()->keep_until = keep_until;
}

RetiredPaths::PathPtr RetiredPaths::reclaim(uint32_t id) {
  const auto it =
      std::find_if(retired_.begin(), retired_.end(), [id](const PathPtr& path) { return path->id() == id; });
  if (it == retired_.end()) return nullptr;
  PathPtr path = std::move(*it);
  retired_.erase(it);
  return path;
}

void RetiredPaths::destroy_expired(NicWorkers& workers, uint64_t now, bool calm) {
  std::erase_if(destructions_, [this](const Destruction& destruction) {
    return destruction.job->done() && !destruction.outcome->refused && !doubtful(destruction);
  });
  if (!Retirement::is_due(retired_.size(), calm, retired_.empty() ? 0 : retired_.front()->keep_until, now))
    return;
  destroy(workers, std::move(retired_.front()));
  retired_.erase(retired_.begin());
}

namespace {

void keep(NicWorkers& workers, int nic, const std::shared_ptr<RetiredPaths::PathPtr>& held) {
  try {
    workers.keep(nic, held);
  } catch (const std::bad_alloc&) {
    static_cast<void>(held->release());  // what its NIC may touch is kept for good
  }
}

// On a NIC's worker. `fatals`: of that NIC, so far. Its queue pairs were destroyed a while ago, as the device
// said. One that fails may have said so, and refuse to give the memory up, or say that it has done that, too.
// Until its kernel has stopped it, it may write there.
void give_memory_up(const std::shared_ptr<RetiredPaths::PathPtr>& held, int nic,
                    const std::atomic<uint32_t>& fatals, NicWorkers& workers, Job& job) {
  Path& path = **held;
  if (path.device_fatals != fatals || !path.deregister(job) || path.device_fatals != fatals)
    return keep(workers, nic, held);
  path.destroy_queues(job);
  held->reset();
}

// On a NIC's worker.
void destroy_held(const std::shared_ptr<RetiredPaths::PathPtr>& held,
                  RetiredPaths::Destruction::Outcome& outcome, int nic, const std::atomic<uint32_t>& fatals,
                  NicWorkers& workers, Job& job) {
  Path& path = **held;
  bool destroyed = false;
  try {
    const auto done = path.destroy(job);
    destroyed = bool(done);
    if (!done && !path.refused_with_eio)
      R2_WARN("NET/R2CCL: a queue pair is not destroyed: %s", done.error().message.c_str());
  } catch (const std::bad_alloc&) {  // of the error's text: the driver has refused
  }
  outcome.with_eio = path.refused_with_eio.load();
  outcome.refused = !destroyed;
  if (!destroyed || path.device_fatals != fatals) return keep(workers, nic, held);
  try {
    workers.give_after(
        nic, Retirement::kConfessionNs, "ibv_dereg_mr",
        [held, nic, &fatals, &workers](Job& later) { give_memory_up(held, nic, fatals, workers, later); });
  } catch (const std::bad_alloc&) {
    give_memory_up(held, nic, fatals, workers, job);
  }
}

}  // namespace

void RetiredPaths::destroy(NicWorkers& workers, PathPtr&& path) {
  destructions_.reserve(destructions_.size() + 1);
  Destruction destruction{path->id(), path->local_nic(), nullptr, std::make_shared<Destruction::Outcome>(),
                          path->device_fatals};
  const auto held = std::make_shared<PathPtr>();
  std::function<void(Job&)> work = [held, outcome = destruction.outcome, nic = destruction.nic,
                                    &fatals = device_fatals_[size_t(destruction.nic)], &workers](Job& job) {
    destroy_held(held, *outcome, nic, fatals, workers, job);
  };
  *held = std::move(path);
  try {
    destruction.job = workers.give_later(destruction.nic, "ibv_destroy_qp", std::move(work));
  } catch (const std::bad_alloc&) {
    path = std::move(*held);
    throw;
  }
  destructions_.push_back(std::move(destruction));
}

void RetiredPaths::destroy_all(NicWorkers& workers) {
  while (!retired_.empty()) {
    destroy(workers, std::move(retired_.front()));
    retired_.erase(retired_.begin());
  }
}

const RetiredPaths::Destruction* RetiredPaths::destruction_of(uint32_t id) const {
  const auto it = std::find_if(destructions_.begin(), destructions_.end(),
                               [id](const Destruction& destruction) { return destruction.path == id; });
  return it == destructions_.end() ? nullptr : &*it;
}

bool RetiredPaths::closed(const NicWorkers& workers) const {
  return std::none_of(destructions_.begin(), destructions_.end(), [&workers](const Destruction& destruction) {
    return Retirement::is_waited_for(destruction.job->done(), workers.stuck(destruction.nic));
  });
}

}  // namespace r2ccl
