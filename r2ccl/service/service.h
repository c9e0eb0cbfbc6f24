// SPDX-License-Identifier: Apache-2.0
// The one thread of the process that does everything that is not the fast path: control connections, async
// events, watchdogs, fences, set-up. It sleeps while nothing is open.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/channel/receiver.h"
#include "r2ccl/control/socket.h"
#include "r2ccl/service/link_watches.h"
#include "r2ccl/service/node_demand.h"
#include "r2ccl/trace/metrics.h"

namespace r2ccl {

/// Where a peer may connect to.
class Listener {
 public:
  /// A sending channel, by its process and its number there.
  using Sender = std::pair<uint64_t, uint32_t>;
  /// A sender whose hello has been taken: however often it says it, it has one channel.
  struct Caller {
    std::optional<uint32_t> channel;  ///< its number; it may have ended
    std::optional<uint64_t> attempt;  ///< number of the last hello
    std::unique_ptr<Error> refuse;    ///< set-up is over, and this is why it came to nothing
  };

  bool is_closed() {
    const std::lock_guard lock(mutex);
    return closed;
  }

  uint64_t id = 0;
  int nic = 0;
  control::Token token{};
  std::mutex mutex;
  std::vector<std::shared_ptr<Channel>> arrived;  ///< ready, or failed with a reason
  bool closed = false;                            ///< nobody will take what arrives
  std::map<Sender, Caller> callers;               ///< service thread only
  uint64_t forget_at = ~uint64_t{0};              ///< the service's: when nobody asks for it any more
};

class Service {
 public:
  explicit Service(ProcessContext& context) : context_(context), link_watches_(context.links) {}
  ~Service() { stop(); }

  /// Starts the thread. Needs the devices of the core to be open.
  Result<void> start();
  /// Ends the thread, within a bound. Idempotent.
  void stop();
  /// Before start(): the thread writes them when they have changed, and when it ends.
  void set_metrics(trace::Metrics& metrics) { metrics_ = &metrics; }
  /// Any thread; never blocks.
  void kick() noexcept;
  /// Service thread only.
  const NicLoad& load(bool shared);
  /// Any thread: the service thread takes care of the channel from now on.
  void adopt(std::shared_ptr<Channel> channel);
  /// Where peers connect to; made on the first call.
  Result<control::Endpoint> endpoint();
  void add(std::shared_ptr<Listener> listener);
  /// Any thread: whoever asks for it from now on is told that it is closed.
  void remove(uint64_t listener);
  /// Any thread; needs the devices of the core to be open.
  std::unique_ptr<LinkWatch> watch_links(LinksWanted wanted);

 private:
  struct Pending {  // a connection that has not said hello
    control::Stream stream;
    uint64_t since;
  };
  struct Entry {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<Listener> listener;  // receivers, until they are ready
    Listener::Caller* caller = nullptr;  // … and whose they are
    int watched_fd = -1;
    uint32_t watched_connection = 0;
    bool watched_for_writing = false;
    bool unwatched = false;  // epoll would not have its connection: it is looked at in every round
  };

  void run();
  Urgency round(Urgency urgency);
  /// What is done for one channel: should it need memory that is not there, only that channel fails.
  template <typename Call>
  void with(Channel& channel, Call&& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      channel.out_of_memory();
    }
  }
  int timeout_ms(Urgency urgency) const;
  void take_adopted();
  void watch(Entry& entry);
  bool watch_fd(int fd, uint64_t data);
  void watch_listening();
  void warn_of_shared_fate(const std::string& interface) const;
  void accept_all(uint64_t now);
  void greet(uint64_t now);
  bool meet(Pending& pending);
  void meet_again(Pending& pending, const Listener::Caller& caller);
  bool resume(Pending& pending);
  void settle(Entry& entry);
  Error nobody_listens() const;
  void read_async_events(size_t nic, const Tick& tick);
  void device_gone(size_t nic, const Tick& tick);
  void port_changed(size_t nic, bool up, const Tick& tick);
  void queue_pair_failed(const ibv_qp* pair, ibv_event_type event, const Tick& tick);
  void look_at_downed_ports(const Tick& tick);
  void leave_unusable_nics(const Tick& tick);
  static constexpr int kRateLookMs = 25;
  void look_at_rates(const Tick& tick);
  void tell_gray(const std::array<bool, wire::kMaxNics>& before);
  void look_at_capacity(const Tick& tick);
  void look_at_load(const Tick& tick);
  std::vector<uint64_t> nic_guids() const;
  Urgency step_channels(const Tick& tick);

  ProcessContext& context_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stopped_{false};
  static constexpr uint64_t kListenAgainNs = 50'000'000;
  std::atomic<uint64_t> listen_again_{0};  // now; when it cannot accept or be watched for lack of something
  bool scarce_told_ = false;
  control::Descriptor epoll_;
  control::Descriptor wake_;
  std::mutex mutex_;  // guards the following
  control::Descriptor listening_;
  control::Endpoint endpoint_;
  std::vector<std::shared_ptr<Channel>> adopted_;
  std::vector<std::shared_ptr<Listener>> listeners_;

  // the thread's own
  std::vector<Entry> entries_;
  std::vector<Pending> pending_;
  uint64_t alive_ = 0;
  uint64_t last_round_ = 0;
  bool memory_told_ = false, unwatched_told_ = false;
  uint64_t next_port_look_ = 0;
  uint64_t next_rate_look_ = 0;
  uint64_t next_capacity_look_ = 0;
  bool rates_wanted_ = false;
  std::optional<NodeDemand> node_demand_;
  LinkWatches link_watches_;
  uint64_t bytes_seen_ = 0;  // on all NICs, when rates were last looked at
  /// Mode 1: what the node's processes have on each NIC. Made when a channel of this process has left home.
  std::optional<NodeDemand> node_load_;
  NicLoad load_;
  uint64_t next_load_look_ = 0;
  std::array<bool, wire::kMaxNics> left_{};  // NICs that are unusable, and known to be
  // Is a port that was said to be down active again? The NIC's worker finds out.
  struct PortLook {
    JobPtr job;
    bool active = false;  // the worker's, until the job is done
  };
  std::array<std::shared_ptr<PortLook>, wire::kMaxNics> port_looks_;
  trace::Metrics* metrics_ = nullptr;
};

}  // namespace r2ccl
