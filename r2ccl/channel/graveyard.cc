#include "r2ccl/channel/graveyard.h"

#include <algorithm>

#include "r2ccl/base/log.h"

namespace r2ccl {

void Graveyard::bury(PathPtr path, uint64_t keep_until) {
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

void Graveyard::destroy(NicWorkers& workers, PathPtr path) {
  Grave grave{path->id(), path->local_nic(), nullptr, std::make_shared<Grave::Outcome>(),
              path->device_fatals};
  auto work = [held = std::shared_ptr<Path>(std::move(path)), outcome = grave.outcome, nic = grave.nic,
               &workers]() mutable {
    if (auto done = held->destroy(); !done) {
      if (!held->refused_with_eio) R2_WARN("NET/R2CCL: a queue pair stays: %s", done.error().message.c_str());
      outcome->with_eio = held->refused_with_eio.load();
      outcome->refused = true;
      workers.keep(nic, held);
    }
    held.reset();
  };
  grave.job = workers.give_later(grave.nic, "ibv_destroy_qp", std::move(work));
  graves_.push_back(std::move(grave));
}

void Graveyard::destroy_all(NicWorkers& workers) {
  for (PathPtr& path : buried_) destroy(workers, std::move(path));
  buried_.clear();
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
