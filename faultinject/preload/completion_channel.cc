// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/completion_channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "faultinject/control/board.h"
#include "faultinject/preload/ended_descriptor.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

constexpr uint64_t kWakingNs = 100'000'000;  // as long as the Context's mutex may be held for it

void pause() {
  const timespec moment{0, 100'000};
  nanosleep(&moment, nullptr);
}

}  // namespace

int CompletionChannel::get(ibv_cq** cq, void** cq_context) {
  const auto real_get = FAULTINJECT_REAL(kGetCqEvent, ibv_get_cq_event);
  const auto acknowledge = FAULTINJECT_REAL(kAckCqEvents, ibv_ack_cq_events);
  if (real_get == nullptr || acknowledge == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  // Who is not counted here before end() looks sees that it has ended.
  inside_.fetch_add(1);
  int rc = -1;
  if (!ended_.load()) rc = real_get(channel_, cq, cq_context);
  const int error = errno;
  const bool to_wake = rc == 0 && *cq == waker_cq_.load();
  if (to_wake) acknowledge(*cq, 1);  // it waits for this before it is destroyed
  inside_.fetch_sub(1);
  if (rc == 0 && !to_wake) return 0;
  errno = ended_.load() ? EIO : error;
  return -1;
}

bool CompletionChannel::end(const Slot& slot,
                            const std::function<std::unique_ptr<ChannelWaker>()>& make_waker) {
  if (ended_.exchange(true)) return false;
  wake_sleepers(slot, make_waker);
  end_descriptor(channel_->fd);
  return true;
}

// The descriptor is left readable: poll() looks again when it is woken.
void CompletionChannel::wake_sleepers(const Slot& slot,
                                      const std::function<std::unique_ptr<ChannelWaker>()>& make_waker) {
  const auto awake = [this] { return inside_.load() == 0 && readable(channel_->fd); };
  if (awake()) return;
  waker_ = make_waker();
  if (waker_ == nullptr) return;
  waker_cq_.store(waker_->cq());
  for (const uint64_t until = monotonic_ns() + kWakingNs; !awake() && monotonic_ns() < until;) {
    if (!readable(channel_->fd)) waker_->wake(slot);
    pause();
  }
}

void CompletionChannel::give_up_descriptor() {
  const int place_holder = eventfd(0, EFD_CLOEXEC);
  if (place_holder < 0) return;
  const int old = std::atomic_ref(channel_->fd).exchange(place_holder);
  close(old);
}

}  // namespace faultinject
