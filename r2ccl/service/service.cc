// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/service/service.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/control/interface.h"
#include "r2ccl/topology/topology.h"

namespace r2ccl {
namespace {

// The 'alive' clock advances at most this much per round: a round that took longer was our own pause.
constexpr uint64_t kLongestStepNs = 2 * kNsPerMs;
constexpr long kHotPauseNs = 20'000;

// epoll data: small numbers are ours, the rest are descriptors shifted past them.
constexpr uint64_t kWake = 0, kListening = 1, kNic = 2, kRemoval = 1 << 8, kStream = 1 << 16;

// A short time slice makes the scheduler run this thread soon after it wakes, at the price of being
// interrupted sooner; it hardly runs at all. Linux 6.12 and newer; others ignore or refuse it, which does no
// harm.
void ask_for_short_slices() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  static_assert(sizeof attributes == 48);
  attributes.size = sizeof attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != 0) return;
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

Result<void> Service::start() {
  if (context_.balances()) node_demand_.emplace(context_.config.node_scope, context_.process, nic_guids());
  epoll_ = control::Descriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = control::Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_)
    return Error{ErrorCode::kSystem, std::string("epoll or eventfd: ") + std::strerror(errno)};
  bool watched = watch_fd(wake_.get(), kWake);
  for (size_t i = 0; i < context_.devices.size(); ++i) {
    const int fd = context_.devices[i].context()->async_fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);  // a stolen event must not stop this thread
    watched = watch_fd(fd, kNic + i) && watched;
    if (const int removal = context_.devices[i].removal_fd(); removal >= 0)
      watched = watch_fd(removal, kRemoval + i) && watched;
  }
  if (!watched) return Error{ErrorCode::kSystem, std::string("epoll_ctl: ") + std::strerror(errno)};
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return Error{ErrorCode::kSystem, std::string("cannot start the service thread: ") + error.what()};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void Service::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  kick();
  // A frozen driver may hold the thread: then it is left behind rather than the process kept from ending.
  for (int waited_ms = 0; waited_ms < 3000 && !stopped_.load(std::memory_order_acquire); ++waited_ms)
    usleep(1000);
  if (stopped_.load(std::memory_order_acquire)) {
    thread_.join();
    node_demand_.reset();  // others would wait to be let in
    node_load_.reset();
  } else {
    thread_.detach();
  }
  context_.ended.store(true, std::memory_order_release);
}

void Service::kick() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Service::adopt(std::shared_ptr<Channel> channel) {
  {
    const std::lock_guard lock(mutex_);
    adopted_.push_back(std::move(channel));
  }
  kick();
}

Result<control::Endpoint> Service::endpoint() {
  const std::lock_guard lock(mutex_);
  if (!listening_) {
    std::string interface;
    auto fd = control::listen_any(
        {context_.config.socket_interface, context_.config.socket_family, context_.config.comm_id}, endpoint_,
        &interface);
    if (!fd) return fd.error();
    warn_of_shared_fate(interface);
    listening_ = std::move(*fd);
    listening_.close_in_child();
    watch_listening();
  }
  return endpoint_;
}

// A migration needs the control connection, which must not fail with the NIC that is left.
void Service::warn_of_shared_fate(const std::string& interface) const {
  if (!context_.resilient()) return;
  for (const verbs::Device& device : context_.devices)
    if (topology::is_interface_of(interface, device.name()))
      R2_WARN(
          "NET/R2CCL: control connections use interface %s, which belongs to NIC %s: if that NIC fails as a "
          "whole, traffic cannot move away from it. Set NCCL_SOCKET_IFNAME, or for this plugin alone "
          "R2CC_SOCKET_IFNAME, to another interface",
          interface.c_str(), device.name().c_str());
}

bool Service::watch_fd(int fd, uint64_t data) {
  epoll_event event{};
  event.events = data >= kRemoval && data < kStream ? 0u : unsigned(EPOLLIN);  // POLLERR comes in any case
  event.data.u64 = data;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

// Where epoll will not have it, connections are accepted when it is tried again.
void Service::watch_listening() {
  if (!watch_fd(listening_.get(), kListening)) listen_again_.store(now_ns() + kListenAgainNs);
}

void Service::add(std::shared_ptr<Listener> listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

void Service::remove(uint64_t id) {
  const uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  for (auto& listener : listeners_)
    if (listener->id == id) listener->forget_at = now + nanoseconds(context_.config.connect_bound);
  std::erase_if(listeners_, [now](const auto& listener) { return listener->forget_at <= now; });
}

// --- the thread -------------------------------------------------------------------------------------------

int Service::timeout_ms(Urgency urgency) const {
  // clang-format off
  switch (urgency) {
    case Urgency::kHot: return 0;
    case Urgency::kWatching: return 1;
    case Urgency::kBusy: return 2;
    case Urgency::kIdle: return 100;
  }
  // clang-format on
  return 100;
}

void Service::run() {
  pthread_setname_np(pthread_self(), "r2ccl-service");
  prctl(PR_SET_TIMERSLACK, 1000UL);
  ask_for_short_slices();
  last_round_ = now_ns();
  Urgency urgency = Urgency::kBusy;
  while (!stopping_.load(std::memory_order_acquire)) {
    try {
      urgency = round(urgency);
    } catch (const std::bad_alloc&) {  // outside of any channel: done again in the next round
      urgency = Urgency::kBusy;
      if (!std::exchange(memory_told_, true))
        R2_WARN("NET/R2CCL: the service thread has run out of memory; it continues");
    }
  }
  try {
    for (const std::string& line : context_.failure_log.due(FailureLog::kAll))
      R2_WARN("NET/R2CCL: %s", line.c_str());
    if (metrics_) metrics_->write(now_ns(), true);
  } catch (const std::bad_alloc&) {  // then it is not told
  }
  stopped_.store(true, std::memory_order_release);
}

Urgency Service::round(Urgency urgency) {
  epoll_event events[64];
  const int timeout = rates_wanted_ ? std::min(timeout_ms(urgency), kRateLookMs) : timeout_ms(urgency);
  const int count = epoll_wait(epoll_.get(), events, 64, timeout);
  const uint64_t now = now_ns();
  alive_ += std::min(now - last_round_, kLongestStepNs);
  last_round_ = now;
  context_.load_stale = true;
  const Tick tick{now, alive_};
  for (int i = 0; i < count; ++i) {
    const uint64_t what = events[i].data.u64;
    if (what == kWake) {
      uint64_t times;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &times, sizeof times);
    } else if (what == kListening) {
      accept_all(now);
    } else if (what < kStream) {
      const uint64_t nic = what < kRemoval ? what - kNic : what - kRemoval;
      if (what < kRemoval && (events[i].events & EPOLLIN)) read_async_events(nic, tick);
      if (events[i].events & (EPOLLERR | EPOLLHUP)) device_gone(nic, tick);
    } else {
      const int fd = int(what - kStream);
      for (Entry& entry : entries_)
        if (entry.watched_fd == fd) with(*entry.channel, [&] { entry.channel->on_socket(tick); });
    }
  }
  take_adopted();
  if (const uint64_t again = listen_again_.load(); again != 0 && now >= again) {
    listen_again_ = 0;
    accept_all(now);  // it may never be watched
    if (listen_again_ == 0) watch_listening();
  }
  if (!pending_.empty()) greet(now);
  look_at_downed_ports(tick);
  leave_unusable_nics(tick);
  context_.workers->look(alive_, [this](int) { return nanoseconds(context_.config.fence_bound); });
  // Registering much memory takes its time; where other calls do not return either, it is not that.
  context_.registrars->look(alive_, [this](int nic) {
    const uint64_t usual = nanoseconds(context_.config.register_bound);
    return context_.workers->stuck(nic) ? std::min(usual, nanoseconds(context_.config.fail_bound)) : usual;
  });
  urgency = step_channels(tick);
  for (const std::string& line : context_.failure_log.due(now)) R2_WARN("NET/R2CCL: %s", line.c_str());
  if (context_.failure_log.open()) urgency = std::max(urgency, Urgency::kBusy);
  if (context_.balances())
    look_at_rates(tick);
  else
    look_at_load(tick);
  if (context_.config.mode == Mode::kAllReduce) look_at_capacity(tick);
  if (context_.workers->open_jobs() || context_.registrars->open_jobs())
    urgency = std::max(urgency, Urgency::kBusy);
  if (metrics_ && urgency != Urgency::kHot) metrics_->write(now);  // a fence does not wait for a file
  if (!pending_.empty()) urgency = std::max(urgency, Urgency::kWatching);
  if (listen_again_.load() != 0) urgency = std::max(urgency, Urgency::kBusy);
  if (urgency == Urgency::kHot && count <= 0) {
    const timespec pause{0, kHotPauseNs};
    nanosleep(&pause, nullptr);
  }
  return urgency;
}

void Service::take_adopted() {
  std::vector<std::shared_ptr<Channel>> adopted;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.capacity() < entries_.size() + adopted_.size())
      entries_.reserve(std::max(2 * entries_.size(), entries_.size() + adopted_.size()));
    adopted.swap(adopted_);
  }
  for (auto& channel : adopted) {
    entries_.push_back({std::move(channel), nullptr, nullptr});
    watch(entries_.back());
  }
}

void Service::watch(Entry& entry) {
  const int fd = entry.channel->fd();
  const bool writing = entry.channel->wants_to_write();
  const uint32_t connection = entry.channel->connection();
  const bool same = fd == entry.watched_fd && connection == entry.watched_connection;
  if (same && writing == entry.watched_for_writing && !entry.unwatched) return;
  epoll_event event{};
  event.events = EPOLLIN | (writing ? unsigned(EPOLLOUT) : 0u);
  event.data.u64 = kStream + uint64_t(fd);
  // A closed descriptor has left the set by itself.
  const bool known = same && !entry.unwatched;
  entry.unwatched =
      fd >= 0 && epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0;
  if (entry.unwatched && !std::exchange(unwatched_told_, true))
    R2_WARN("NET/R2CCL: epoll does not accept a control connection: %s; it is polled instead",
            std::strerror(errno));
  entry.watched_fd = fd;
  entry.watched_connection = connection;
  entry.watched_for_writing = writing;
}

Urgency Service::step_channels(const Tick& tick) {
  Urgency urgency = Urgency::kIdle;
  context_.standbys = 0;
  for (const Entry& entry : entries_) context_.standbys += entry.channel->standbys();
  for (Entry& entry : entries_) {
    Channel& channel = *entry.channel;
    with(channel, [&] {
      if (entry.unwatched) channel.on_socket(tick);
      urgency = std::max(urgency, channel.step(tick));
      if (entry.listener) settle(entry);
    });
    watch(entry);
    if (entry.unwatched || (channel.status() == Status::kFailed && entry.listener))
      urgency = std::max(urgency, Urgency::kBusy);
  }
  std::erase_if(entries_, [](const Entry& entry) { return entry.channel->finished(); });
  return urgency;
}

}  // namespace r2ccl
