// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/path/path_halves.h"

#include <algorithm>
#include <new>
#include <utility>

namespace r2ccl {
namespace {

void prepare(PathHalf& half, ProcessContext& context, const std::shared_ptr<ChannelMemory>& memory,
             bool keeps_copies, bool flushes, Job& job) {
  verbs::Device& device = context.devices[size_t(half.local)];
  if (!device.refresh_port(context.config)) {
    half.made = Error{ErrorCode::kVerbs, "its port is not active"};
    return;
  }
  half.speed_mbps = device.speed_mbps();
  half.made = Path::create(half.path, half.local, half.remote, device, memory, keeps_copies,
                           context.resilient(), flushes, job);
  if (!half.made) return;
  Path& path = **half.made;
  if (half.peer_end)
    if (auto connected = path.connect(device, *half.peer_end, context.config, job); !connected) {
      path.discard(job);
      half.made = connected.error();
      return;
    }
  half.end = path.describe(device);
}

}  // namespace

void PathHalves::make(uint32_t path, int local, int remote, bool flushes,
                      std::optional<wire::PathEnd> peer_end) {
  halves_.reserve(halves_.size() + 1);
  auto half = std::make_shared<PathHalf>();
  half->path = path;
  half->local = local;
  half->remote = remote;
  half->peer_end = peer_end;
  half->device_fatals = context_.device_fatals[size_t(local)];
  half->job = context_.workers->give(
      local, "ibv_query_port",
      [half, &context = context_, memory = memory_, sends = sends_, flushes](Job& job) {
        try {
          prepare(*half, context, memory, sends && context.copied_bytes() > 0, flushes, job);
        } catch (const std::bad_alloc&) {
          half->made = Error{ErrorCode::kOutOfResources, "no memory"};
        }
      });
  halves_.push_back(std::move(half));
}

bool PathHalves::makes(uint32_t path) const {
  return std::any_of(halves_.begin(), halves_.end(),
                     [path](const auto& half) { return half->path == path && !half->unwanted; });
}

const PathHalf* PathHalves::find(uint32_t path) const {
  const auto it =
      std::find_if(halves_.begin(), halves_.end(), [path](const auto& half) { return half->path == path; });
  return it == halves_.end() ? nullptr : it->get();
}

void PathHalves::unwant(uint32_t path) {
  for (auto& half : halves_) half->unwanted |= half->path == path;
}

void PathHalves::unwant_all() {
  for (auto& half : halves_) half->unwanted = true;
}

void PathHalves::unwant_stuck(const std::function<void(const PathHalf&)>& tell) {
  for (auto& half : halves_)
    if (!half->unwanted && !half->job->done() && context_.workers->stuck(half->local)) {
      half->unwanted = true;
      tell(*half);
    }
}

std::shared_ptr<PathHalf> PathHalves::done() const {
  const auto it =
      std::find_if(halves_.begin(), halves_.end(), [](const auto& half) { return half->job->done(); });
  return it == halves_.end() ? nullptr : *it;
}

void PathHalves::remove(const PathHalf& half) {
  std::erase_if(halves_, [&](const auto& it) { return it.get() == &half; });
}

}  // namespace r2ccl
