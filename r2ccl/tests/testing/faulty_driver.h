// SPDX-License-Identifier: Apache-2.0
// Test support: a driver that answers late, refuses, or only pretends. Include it in one source file of the
// program: it defines the functions themselves. Posting and polling go on, as on a NIC whose commands fail
// while it works.
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

namespace r2ccl::testing_support {

class FaultyDriver {
 public:
  static constexpr size_t kNics = 4;
  /// What moving to ERR and destroying a queue pair come to.
  enum class Answer : int {
    kReal,
    kRefused,    ///< EIO, as after a removal
    kPretended,  ///< success, and nothing is done, as of mlx5 in its internal-error state
  };
  struct Nic {
    std::atomic<long> late_error_us{0};   ///< how long a move to ERR takes
    std::atomic<long> late_create_us{0};  ///< … and making a queue pair
    std::atomic<Answer> modify{Answer()};
    std::atomic<Answer> destroy{Answer()};
    std::atomic<int> refused{0}, pretended{0};  ///< calls so far
    std::atomic<bool> reports{false};           ///< `event` is to be delivered once
    std::atomic<ibv_event_type> event{IBV_EVENT_DEVICE_FATAL};
    std::atomic<int> delivered{0};
    std::atomic<ibv_context*> context{nullptr};
    int other_end = -1;  ///< of the asynchronous descriptor of a NIC that can be disassociated
  };
  static Nic& nic(size_t number) { return nics_[number]; }
  static Nic& of(const ibv_context* context) {
    const char* name = ibv_get_device_name(context->device);
    return nics_[size_t(name[std::strlen(name) - 1] - '0') % kNics];
  }

  /// Modify and destroy answer so from now on.
  static void answer(size_t number, Answer modify, Answer destroy) {
    nic(number).modify = modify;
    nic(number).destroy = destroy;
  }
  /// The NIC's asynchronous descriptor says `event`.
  static void report(size_t number, ibv_event_type event) {
    Nic& it = nic(number);
    it.event = event;
    it.reports = true;
    const uint64_t one = 1;
    const int fd = it.other_end >= 0 ? it.other_end : it.context.load()->async_fd;
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
  }
  /// Before the NIC is opened: it can be disassociated, and reports what report() says only.
  static void can_be_disassociated(size_t number) { disassociable_ |= 1u << number; }
  /// What the kernel does last when a device goes: its queue pairs are destroyed, then the asynchronous
  /// descriptor polls as POLLERR for ever.
  static void disassociate(size_t number) {
    destroy_all(number);
    close(nic(number).other_end);
  }
  /// All of them go to ERR, whatever the program was told.
  static void destroy_all(size_t number) {
    const std::lock_guard lock(mutex_);
    for (ibv_qp* pair : pairs_)
      if (&of(pair->context) == &nic(number)) {
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        real<decltype(ibv_modify_qp)>("ibv_modify_qp")(pair, &attributes, IBV_QP_STATE);
      }
  }

  template <typename F>
  static F* real(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  }
  static void sleep_us(long us) {
    if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  static void opened(ibv_context* context) {
    Nic& it = of(context);
    it.context = context;
    if (!(disassociable_ >> (&it - nics_.data()) & 1)) return;
    int ends[2];  // a socket whose other end is closed with something unread polls as POLLERR for ever
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
    dup2(ends[1], context->async_fd);
    close(ends[1]);
    [[maybe_unused]] const ssize_t unread = write(context->async_fd, "!", 1);
    it.other_end = ends[0];
  }
  static void made(ibv_qp* pair) {
    const std::lock_guard lock(mutex_);
    pairs_.insert(pair);
  }
  static void gone(ibv_qp* pair) {
    const std::lock_guard lock(mutex_);
    pairs_.erase(pair);
  }

 private:
  static std::array<Nic, kNics> nics_;
  inline static unsigned disassociable_ = 0;
  inline static std::mutex mutex_;
  inline static std::set<ibv_qp*> pairs_;
};

inline std::array<FaultyDriver::Nic, FaultyDriver::kNics> FaultyDriver::nics_;

}  // namespace r2ccl::testing_support

extern "C" {
ibv_context* ibv_open_device(ibv_device* device) {
  using r2ccl::testing_support::FaultyDriver;
  static auto* const real = FaultyDriver::real<decltype(ibv_open_device)>("ibv_open_device");
  ibv_context* context = real(device);
  if (context) FaultyDriver::opened(context);
  return context;
}
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  using r2ccl::testing_support::FaultyDriver;
  static auto* const real = FaultyDriver::real<decltype(ibv_modify_qp)>("ibv_modify_qp");
  FaultyDriver::Nic& nic = FaultyDriver::of(pair->context);
  if ((mask & IBV_QP_STATE) && attributes->qp_state == IBV_QPS_ERR) FaultyDriver::sleep_us(nic.late_error_us);
  switch (nic.modify.load()) {
    case FaultyDriver::Answer::kRefused:
      return ++nic.refused, EIO;
    case FaultyDriver::Answer::kPretended:
      return ++nic.pretended, 0;
    default:
      return real(pair, attributes, mask);
  }
}
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  using r2ccl::testing_support::FaultyDriver;
  static auto* const real = FaultyDriver::real<decltype(ibv_create_qp)>("ibv_create_qp");
  FaultyDriver::Nic& nic = FaultyDriver::of(domain->context);
  FaultyDriver::sleep_us(nic.late_create_us);
  if (nic.modify.load() != FaultyDriver::Answer::kReal) {
    errno = EIO;
    return nullptr;
  }
  ibv_qp* pair = real(domain, attributes);
  if (pair) FaultyDriver::made(pair);
  return pair;
}
int ibv_destroy_qp(ibv_qp* pair) {
  using r2ccl::testing_support::FaultyDriver;
  static auto* const real = FaultyDriver::real<decltype(ibv_destroy_qp)>("ibv_destroy_qp");
  FaultyDriver::Nic& nic = FaultyDriver::of(pair->context);
  switch (nic.destroy.load()) {
    case FaultyDriver::Answer::kRefused:
      return ++nic.refused, EIO;
    case FaultyDriver::Answer::kPretended:
      return ++nic.pretended, 0;
    default:
      FaultyDriver::gone(pair);
      return real(pair);
  }
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  using r2ccl::testing_support::FaultyDriver;
  static auto* const real = FaultyDriver::real<decltype(ibv_get_async_event)>("ibv_get_async_event");
  FaultyDriver::Nic& nic = FaultyDriver::of(context);
  if (!nic.reports.exchange(false)) return real(context, event);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(context->async_fd, &count, sizeof count);
  *event = {};
  event->event_type = nic.event;
  event->element.port_num = 1;
  ++nic.delivered;
  return 0;
}
}
