#include "r2ccl/channel/registrations.h"

#include <algorithm>
#include <optional>

#include "r2ccl/base/log.h"

namespace r2ccl {

Result<Registration*> Registrations::add(void* data, size_t bytes, int home_nic) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  const std::pair<uintptr_t, uintptr_t> range{first, first + bytes};
  const std::lock_guard lock(mutex_);
  auto [it, fresh] = ranges_.try_emplace(range);
  if (fresh) {
    it->second = std::make_unique<Registration>();
    it->second->first_ = range.first;
    it->second->last_ = range.second;
  }
  Registration& registration = *it->second;
  std::optional<Error> refused;
  for (int nic = 0; nic < int(core_.devices.size()); ++nic) {
    if (registration.regions_[size_t(nic)] || (!core_.resilient() && nic != home_nic)) continue;
    auto region = verbs::MemoryRegion::create(core_.devices[size_t(nic)], data, bytes);
    if (!region) {
      if (!refused || nic == home_nic) refused = region.error();
      continue;
    }
    registration.regions_[size_t(nic)] = std::move(*region);
  }
  const bool on_none = std::none_of(registration.regions_.begin(), registration.regions_.end(),
                                    [](const verbs::MemoryRegion& region) { return bool(region); });
  if (refused && (on_none || !core_.resilient())) {
    if (fresh) ranges_.erase(it);
    return *refused;
  }
  // One NIC less, be it the channel's own, is no reason to end the job: what is on its way over it fails
  // there, and moves.
  for (int nic = 0; nic < int(core_.devices.size()); ++nic)
    if (core_.resilient() && !registration.regions_[size_t(nic)] &&
        !core_.nic_unusable[size_t(nic)].exchange(true))
      R2_WARN("NET/R2CCL: a buffer cannot be registered on NIC %s, which carries nothing any more: %s. %s",
              core_.devices[size_t(nic)].name().c_str(), refused->message.c_str(),
              advice(refused->code).data());
  ++registration.users_;
  return &registration;
}

Result<void> Registrations::remove(Registration* registration) {
  if (!registration) return {};
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find({registration->first_, registration->last_});
  if (it == ranges_.end() || it->second.get() != registration)
    return Error{ErrorCode::kInvalidArgument, "a registration was given back twice"};
  if (--registration->users_ == 0) ranges_.erase(it);
  return {};
}

}  // namespace r2ccl
