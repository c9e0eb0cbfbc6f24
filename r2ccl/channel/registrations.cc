#include "r2ccl/channel/registrations.h"

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
  for (int nic = 0; nic < int(core_.devices.size()); ++nic) {
    if (registration.regions_[size_t(nic)] || (!core_.resilient() && nic != home_nic)) continue;
    auto region = verbs::MemoryRegion::create(core_.devices[size_t(nic)], data, bytes);
    if (!region && nic != home_nic) {  // one NIC less to fall back on, which is no reason to end the job
      if (!core_.nic_unusable[size_t(nic)].exchange(true))
        R2_WARN("NET/R2CCL: %s; this NIC is no backup any more. %s", region.error().message.c_str(),
                advice(region.error().code).data());
      continue;
    }
    if (!region) {
      if (fresh) ranges_.erase(it);
      return region.error();
    }
    registration.regions_[size_t(nic)] = std::move(*region);
  }
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
