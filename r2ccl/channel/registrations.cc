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
    it->second = std::make_shared<Registration>();
    it->second->first_ = range.first;
    it->second->last_ = range.second;
  }
  if (auto filled = fill(*it->second, data, bytes, home_nic); !filled) {
    if (fresh) {
      empty(it->second);
      ranges_.erase(it);
    }
    return filled.error();
  }
  if (fresh) it->second->far_nics_ = core_.far_nics(data);  // now that it is pinned; before, it may not exist
  ++it->second->users_;
  return it->second.get();
}

Result<void> Registrations::fill(Registration& registration, void* data, size_t bytes, int home_nic) {
  struct Attempt {
    JobPtr job;
    Result<verbs::MemoryRegion> region{verbs::MemoryRegion()};  // the worker's, until the job is done
  };
  std::vector<std::shared_ptr<Attempt>> attempts(core_.devices.size());
  for (size_t nic = 0; nic < attempts.size(); ++nic) {
    if (registration.regions_[nic] || (!core_.resilient() && int(nic) != home_nic)) continue;
    auto attempt = attempts[nic] = std::make_shared<Attempt>();
    const auto work = [attempt, &device = core_.devices[nic], data, bytes] {
      attempt->region = verbs::MemoryRegion::create_buffer(device, data, bytes);
    };
    if (core_.resilient())
      attempt->job = core_.registrars->give(int(nic), "ibv_reg_mr", work);
    else
      work();
  }
  std::vector<std::optional<Error>> refused(attempts.size());
  const Error* reason = nullptr;
  for (size_t nic = 0; nic < attempts.size(); ++nic) {
    if (!attempts[nic]) continue;
    Attempt& attempt = *attempts[nic];
    const bool answered = !attempt.job || core_.registrars->wait(int(nic), *attempt.job);
    if (answered && attempt.region) {
      registration.regions_[nic] = std::move(*attempt.region);
      continue;
    }
    refused[nic] = answered ? attempt.region.error()
                            : Error{ErrorCode::kVerbs, "ibv_reg_mr on " + core_.devices[nic].name() +
                                                           ": its driver does not answer"};
    if (!reason || int(nic) == home_nic) reason = &*refused[nic];
  }
  const bool on_none = std::none_of(registration.regions_.begin(), registration.regions_.end(),
                                    [](const verbs::MemoryRegion& region) { return bool(region); });
  if (reason && (on_none || !core_.resilient())) return *reason;
  // One NIC less, be it the channel's own, is no reason to end the job: the channels leave it.
  for (size_t nic = 0; nic < refused.size(); ++nic) {
    if (!refused[nic] || core_.nic_unusable[nic].exchange(true)) continue;
    R2_WARN("NET/R2CCL: a buffer cannot be registered on NIC %s, which carries nothing any more: %s. %s",
            core_.devices[nic].name().c_str(), refused[nic]->message.c_str(),
            advice(refused[nic]->code).data());
    core_.kick();
  }
  return {};
}

Result<void> Registrations::remove(Registration* registration) {
  if (!registration) return {};
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find({registration->first_, registration->last_});
  if (it == ranges_.end() || it->second.get() != registration)
    return Error{ErrorCode::kInvalidArgument, "a registration was given back twice"};
  if (--registration->users_ > 0) return {};
  const std::shared_ptr<Registration> last = std::move(it->second);
  ranges_.erase(it);
  empty(last);
  return {};
}

// When it returns, no NIC knows the memory any more, but for those whose driver does not answer.
void Registrations::empty(const std::shared_ptr<Registration>& registration) {
  std::vector<JobPtr> jobs(core_.devices.size());
  for (size_t nic = 0; nic < jobs.size(); ++nic) {
    if (!registration->regions_[nic]) continue;
    const auto work = [registration, nic] { registration->regions_[nic] = {}; };
    if (core_.resilient())
      jobs[nic] = core_.registrars->give(int(nic), "ibv_dereg_mr", work);
    else
      work();
  }
  for (size_t nic = 0; nic < jobs.size(); ++nic)
    if (jobs[nic]) static_cast<void>(core_.registrars->wait(int(nic), *jobs[nic]));
}

}  // namespace r2ccl
