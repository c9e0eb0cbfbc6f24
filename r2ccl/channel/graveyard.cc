// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/graveyard.h"

#include <algorithm>
#include <functional>
#include <new>

#include "r2ccl/base/log.h"

namespace r2ccl {

void Graveyard::bury(PathPtr&& path, uint64_t keep_until) {
  buried_.push_back(std::move(path));
  buried_.back()->keep_until = keep_until;
}

Graveyard::PathPtr Graveyard::exhume(uint32_t id) {
  const auto it =
      std::find_if(buried_.begin(), buried_.end(), [id](const PathPtr& path) { return path->id() == id; });
  if (it == buried_.end()) return nullptr;
  PathPtr path = std::move(*it);
  buried_.erase(it);
  return path;
}

void Graveyard::dig(NicWorkers& workers, uint64_t now, bool calm) {
  std::erase_if(graves_, [this](const Grave& grave) {
    return grave.job->done() && !grave.outcome->refused && !doubtful(grave);
  });
  if (buried_.empty() || (buried_.size() <= kMostBuried && !(calm && now >= buried_.front()->keep_until)))
    return;
  destroy(workers, std::move(buried_.front()));
  buried_.erase(buried_.begin());
}

namespace {

// On a NIC's worker.
void destroy_held(const std::shared_ptr<Graveyard::PathPtr>& held, Graveyard::Grave::Outcome& outcome,
                  int nic, NicWorkers& workers) {
  Path& path = **held;
  try {
    const auto done = path.destroy();
    if (done) return held->reset();
    if (!path.refused_with_eio) R2_WARN("NET/R2CCL: a queue pair stays: %s", done.error().message.c_str());
  } catch (const std::bad_alloc&) {  // of the error's text: the driver has refused
  }
  outcome.with_eio = path.refused_with_eio.load();
  outcome.refused = true;
  try {
    workers.keep(nic, held);
  } catch (const std::bad_alloc&) {
    static_cast<void>(held->release());  // what its NIC may touch is kept for good
  }
}

}  // namespace

void Graveyard::destroy(NicWorkers& workers, PathPtr&& path) {
  graves_.reserve(graves_.size() + 1);
  Grave grave{path->id(), path->local_nic(), nullptr, std::make_shared<Grave::Outcome>(),
              path->device_fatals};
  const auto held = std::make_shared<PathPtr>();
  std::function<void()> work = [held, outcome = grave.outcome, nic = grave.nic, &workers] {
    destroy_held(held, *outcome, nic, workers);
  };
  *held = std::move(path);
  try {
    grave.job = workers.give_later(grave.nic, "ibv_destroy_qp", std::move(work));
  } catch (const std::bad_alloc&) {
    path = std::move(*held);
    throw;
  }
  graves_.push_back(std::move(grave));
}

void Graveyard::destroy_all(NicWorkers& workers) {
  while (!buried_.empty()) {
    destroy(workers, std::move(buried_.front()));
    buried_.erase(buried_.begin());
  }
}

const Graveyard::Grave* Graveyard::grave_of(uint32_t id) const {
  const auto it =
      std::find_if(graves_.begin(), graves_.end(), [id](const Grave& grave) { return grave.path == id; });
  return it == graves_.end() ? nullptr : &*it;
}

bool Graveyard::closed(const NicWorkers& workers) const {
  return std::all_of(graves_.begin(), graves_.end(), [&workers](const Grave& grave) {
    return grave.job->done() || workers.stuck(grave.nic);
  });
}

}  // namespace r2ccl
