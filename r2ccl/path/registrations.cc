// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/path/registrations.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"

namespace r2ccl {

namespace {

/// A descriptor of its own: a driver that is late may still look at it when the caller has closed the other.
class Descriptor {
 public:
  explicit Descriptor(int of) : fd_(fcntl(of, F_DUPFD_CLOEXEC, 0)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<Registrations::Identity> Registrations::identity(void* data, size_t bytes,
                                                        const BufferMemory& memory) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  Identity identity{memory.kind, first, first + bytes};
  if (memory.kind != BufferMemory::Kind::kDmaBuf) return identity;
  struct stat status {};
  if (fstat(memory.fd, &status) != 0)
    return Error{ErrorCode::kSystem,
                 "the dma-buf's descriptor " + std::to_string(memory.fd) + ": " + std::strerror(errno)};
  identity.device = status.st_dev;
  identity.inode = status.st_ino;
  identity.offset = memory.offset;
  return identity;
}

Result<Registration*> Registrations::add(void* data, size_t bytes, const BufferMemory& memory, int home_nic) {
  auto identified = identity(data, bytes, memory);
  if (!identified) return identified.error();
  if (!context_.resilient()) identified->home_nic = home_nic;
  const std::lock_guard lock(mutex_);
  auto [it, fresh] = ranges_.try_emplace(*identified);
  if (fresh) it->second = std::make_shared<Registration>();
  if (auto filled = fill(*it->second, data, bytes, memory, home_nic); !filled) {
    if (fresh) {
      empty(it->second);
      ranges_.erase(it);
    }
    return filled.error();
  }
  if (fresh) {
    it->second->on_gpu_ = memory.kind != BufferMemory::Kind::kHost;
    // Now that it is pinned; before, it may not exist. Where a GPU's memory is the kernel cannot say.
    if (!it->second->on_gpu_) it->second->far_nics_ = context_.far_nics(data);
  }
  places_[it->second.get()] = it;
  ++it->second->users_;
  return it->second.get();
}

struct Registrations::Attempts {
  struct OnNic {
    JobPtr job;
    // the worker's, until the job is done
    Result<verbs::MemoryRegion> region{Error{ErrorCode::kOutOfResources, "no memory"}};
  };
  const char* call;
  std::vector<std::shared_ptr<OnNic>> on;  // each NIC; nullptr: it is not asked
};

Result<Registrations::Attempts> Registrations::ask_nics(const Registration& registration, void* data,
                                                        size_t bytes, const BufferMemory& memory,
                                                        int home_nic) {
  const bool by_descriptor = memory.kind == BufferMemory::Kind::kDmaBuf;
  Attempts attempts{by_descriptor ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr", {}};
  std::shared_ptr<Descriptor> descriptor;
  if (by_descriptor) {
    descriptor = std::make_shared<Descriptor>(memory.fd);
    if (descriptor->get() < 0)
      return Error{ErrorCode::kSystem, std::string("dup of a dma-buf's descriptor: ") + std::strerror(errno)};
  }
  attempts.on.resize(context_.devices.size());
  for (size_t nic = 0; nic < attempts.on.size(); ++nic) {
    if (registration.regions_[nic] || (!context_.resilient() && int(nic) != home_nic)) continue;
    // It carries nothing any more; and who uses this registration already may be reading its keys.
    if (context_.resilient() && context_.nic_unusable[nic]) continue;
    auto attempt = attempts.on[nic] = std::make_shared<Attempts::OnNic>();
    const auto work = [attempt, &device = context_.devices[nic], data, bytes, descriptor,
                       offset = memory.offset] {
      attempt->region = descriptor ? verbs::MemoryRegion::create_from_dma_buf(device, descriptor->get(),
                                                                              offset, data, bytes)
                                   : verbs::MemoryRegion::create_buffer(device, data, bytes);
    };
    if (context_.resilient())
      attempt->job = context_.registrars->give(int(nic), attempts.call, [work](Job&) { work(); });
    else
      work();
  }
  return attempts;
}

Registrations::Refusals Registrations::take_answers(Registration& registration, const Attempts& attempts) {
  Refusals refused(attempts.on.size());
  for (size_t nic = 0; nic < attempts.on.size(); ++nic) {
    if (!attempts.on[nic]) continue;
    Attempts::OnNic& attempt = *attempts.on[nic];
    const bool answered = !attempt.job || context_.registrars->wait(int(nic), *attempt.job);
    if (answered && attempt.region) {
      registration.regions_[nic] = std::move(*attempt.region);
      registration.lkeys_[nic] = registration.regions_[nic].lkey();
      registration.rkeys_[nic] = registration.regions_[nic].rkey();
      continue;
    }
    refused[nic] = answered ? attempt.region.error()
                            : Error{ErrorCode::kVerbs, std::string(attempts.call) + " on " +
                                                           context_.devices[nic].name() +
                                                           ": its driver does not answer"};
  }
  return refused;
}

// One NIC less, be it the channel's own, is no reason to end the job: the channels leave it.
void Registrations::leave_nics(const Refusals& refused) {
  for (size_t nic = 0; nic < refused.size(); ++nic) {
    if (!refused[nic] || context_.nic_unusable[nic].exchange(true)) continue;
    R2_WARN("NET/R2CCL: a buffer cannot be registered on NIC %s, which is not used any more: %s. %s",
            context_.devices[nic].name().c_str(), refused[nic]->message.c_str(),
            advice(refused[nic]->code).data());
    context_.kick();
  }
}

Result<void> Registrations::fill(Registration& registration, void* data, size_t bytes,
                                 const BufferMemory& memory, int home_nic) {
  auto attempts = ask_nics(registration, data, bytes, memory, home_nic);
  if (!attempts) return attempts.error();
  const Refusals refused = take_answers(registration, *attempts);
  const bool on_none = std::none_of(registration.regions_.begin(), registration.regions_.end(),
                                    [](const verbs::MemoryRegion& region) { return bool(region); });
  if (on_none || !context_.resilient()) {
    if (refused[size_t(home_nic)]) return *refused[size_t(home_nic)];
    const auto first =
        std::find_if(refused.begin(), refused.end(), [](const auto& it) { return it.has_value(); });
    if (first != refused.end()) return **first;
    if (on_none) return Error{ErrorCode::kVerbs, "no NIC of this process can register buffers any more"};
  }
  leave_nics(refused);
  return {};
}

Result<void> Registrations::remove(Registration* registration) {
  if (!registration) return {};
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(registration);
  if (place == places_.end()) return Error{ErrorCode::kInvalidArgument, "a registration was removed twice"};
  if (--registration->users_ > 0) return {};
  const std::shared_ptr<Registration> last = std::move(place->second->second);
  ranges_.erase(place->second);
  places_.erase(place);
  empty(last);
  return {};
}

// When it returns, no NIC knows the memory any more, but for those whose driver does not answer. There the
// kernel keeps the memory until it does, and the caller, who may be a progress thread of all channels, is not
// kept: the first such call waits for the bound of a fence, and the next ones find that it is over.
void Registrations::empty(const std::shared_ptr<Registration>& registration) {
  std::vector<JobPtr> jobs(context_.devices.size());
  for (size_t nic = 0; nic < jobs.size(); ++nic) {
    if (!registration->regions_[nic]) continue;
    const auto work = [registration, nic] { registration->regions_[nic] = {}; };
    if (context_.resilient())
      jobs[nic] = context_.registrars->give(int(nic), "ibv_dereg_mr", [work](Job&) { work(); });
    else
      work();
  }
  for (size_t nic = 0; nic < jobs.size(); ++nic)
    if (jobs[nic])
      static_cast<void>(
          context_.registrars->wait(int(nic), *jobs[nic], nanoseconds(context_.config.fence_bound)));
}

}  // namespace r2ccl
