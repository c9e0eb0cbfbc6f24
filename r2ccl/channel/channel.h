// SPDX-License-Identifier: Apache-2.0
// One direction between two ranks: what both ends have in common. Its parts: the control connection (and what
// happens when it breaks: outage.cc), the set of paths (paths.cc), the watchdog and the migration protocol
// (watchdog.cc, migration.cc, fence.cc), all run by the service thread; and its ownership, which keeps the
// progress thread's data path apart from them. Sender and Receiver add the messages, and which paths there
// are.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "r2ccl/balance/splitter.h"
#include "r2ccl/channel/progress_thread.h"
#include "r2ccl/channel/request.h"
#include "r2ccl/control/link.h"
#include "r2ccl/path/path.h"
#include "r2ccl/path/path_halves.h"
#include "r2ccl/path/path_set.h"
#include "r2ccl/path/process_context.h"
#include "r2ccl/protocol/activity.h"
#include "r2ccl/protocol/bounds.h"
#include "r2ccl/protocol/channel_end.h"
#include "r2ccl/protocol/closing.h"
#include "r2ccl/protocol/failback.h"
#include "r2ccl/protocol/fence.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/outage.h"
#include "r2ccl/protocol/owner_claim.h"
#include "r2ccl/protocol/peer.h"
#include "r2ccl/protocol/rail_choice.h"
#include "r2ccl/protocol/rail_record.h"
#include "r2ccl/protocol/search.h"
#include "r2ccl/protocol/turn.h"
#include "r2ccl/protocol/watchdog.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  virtual ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // --- any thread ---
  Status status() const { return status_.load(std::memory_order_acquire); }
  /// Why it failed; valid once status() is kFailed.
  const Error& error() const { return error_; }
  uint32_t number() const { return number_; }
  /// Asks the service thread to close it and waits until its QPs are gone, or a bound.
  void close_and_wait();
  /// Whose it is; a sender that nobody asks for is closed after R2CC_CONNECT_MS.
  OwnerClaim& claim() { return claim_; }
  bool is_sender() const { return sender_; }
  ProcessContext& context() { return context_; }
  int home_nic() const { return home_nic_; }
  /// Bit l: traffic on the straight rail of local NIC l crosses sockets, at one end or the other.
  uint8_t far_rails() const;

  // --- progress thread; kNicFailed, kAllPathsDown, kPeerGone … when the channel has failed ---
  virtual Result<Request*> post(void* data, size_t bytes, Registration* registration,
                                ProgressThread& thread) = 0;
  virtual Result<TestOutcome> test(Request& request, ProgressThread& thread) = 0;
  /// Writes the ACK that a test has put off, if no other has been written since. False: not now, call again.
  virtual bool acknowledge() { return true; }
  /// It is about to be closed: what is open is tested no more.
  void forget_requests(ProgressThread& thread) {
    for (Request& request : requests_) thread.ended(request);
  }

  // --- service thread ---
  int fd() const { return link_.fd(); }
  bool wants_to_write() const { return link_.wants_to_write(); }
  /// Changes whenever fd() is another connection.
  uint32_t connection() const { return link_.generation(); }
  /// The peer has connected anew, and `stream` begins with what it says then: its wish to go on, or its hello
  /// again. False: it is not our peer, or says old things, and nothing has changed.
  bool reconnected(control::Stream stream, const Tick& tick);
  /// Reads and handles control messages, writes what is queued.
  void on_socket(const Tick& tick);
  /// Watchdog, probes, fences, opening of paths, failback. Says how soon it wants to be called again.
  Urgency step(const Tick& tick);
  /// A local NIC changed. Active paths on a dead one are left at once.
  void nic_changed(int nic, bool up, const Tick& tick);
  /// The device of a local NIC has failed as a whole. Without resilience nothing else may tell: an error, as
  /// in NCCL's own transport.
  void device_fatal(int nic);
  /// A local queue pair, perhaps one of this channel's, is in ERR by itself: nobody may be using it just now.
  void queue_pair_failed(const ibv_qp* pair, const char* what, const Tick& tick);
  /// An asynchronous event says that a completion queue reports nothing any more. Ignored when it is not this
  /// channel's.
  void completion_queue_failed(const ibv_cq* queue, const Tick& tick);
  /// A sender counts itself in. True: it is away from home.
  virtual bool add_to(NicLoad& /*load*/, const Tick& /*tick*/) const { return false; }
  /// A sender whose traffic another NIC carries than its own.
  virtual bool is_away() const { return false; }
  /// Its home rail has failed, and has not come back: either NIC of it, or what is between them.
  bool lacks_home() const { return failback_.is_down(); }
  /// Its traffic is where a plan for all NICs has it (GroupPlan). Any thread.
  void follow(const PlanKnowledge::Plan& plan) { plan_.store(&plan, std::memory_order_release); }
  const PlanKnowledge::Plan* plan() const { return plan_.load(std::memory_order_acquire); }
  bool follows_plan() const { return plan_.load(std::memory_order_relaxed) != nullptr; }
  /// A sender that has had traffic of late: it counts as demand on its home NIC.
  virtual bool in_demand(uint64_t /*now*/) const { return false; }
  /// Paths that it has opened besides the active one.
  virtual int standbys() const { return 0; }
  /// What it was doing could not be finished for lack of memory: it fails, and everything else goes on.
  void out_of_memory() noexcept;
  /// f(const Path&) of each path in use. (The simulation looks at what both ends have.)
  template <class F>
  void for_each_path(F&& f) const {
    for (const auto& path : paths_) f(static_cast<const Path&>(*path));
  }
  /// True when nothing of it is left but the memory.
  bool finished() const { return closing_.finished(); }
  bool busy() const { return activity_.busy(); }
  std::atomic<bool> close_requested{false};

 protected:
  Channel(ProcessContext& context, MigrationEnd& end, bool sender, int home_nic, control::Stream stream,
          const control::Token& token);

  // --- for Sender and Receiver ---
  static constexpr size_t kBatch = 16;  ///< completions handled at once
  /// Handles up to a batch of completions of `path`. True: there may be more.
  bool drain(Path& path, Owned);
  /// All that can be had of paths that carry or are being fenced, and in nobody's hands.
  void drain_all(Owned);
  virtual void on_data_sent(Path& /*path*/, uint32_t /*detail*/, Owned) {}
  virtual void on_arrival(Path& /*path*/, const ibv_wc& /*completion*/, Owned) {}
  /// Of a path that flushes: whether a flush is back, and whether another is wanted.
  virtual void look_at_flush(Path& /*path*/, Owned) {}
  /// After a batch: acknowledge, and so on.
  virtual void after_drain(Path& /*path*/, Owned) {}
  /// The first error on a path that carries traffic: nothing is posted any more, the service thread takes
  /// over.
  void suspect(Path& path, ibv_wc_status status, Owned);
  void suspect_post(Path& path, int error, Owned);
  void fail(Error error);

  // --- which paths there are: SenderPaths decides, the receiver follows
  virtual void step_paths(const Tick&) = 0;
  virtual void half_made(PathHalf& half, const Tick&) = 0;
  virtual void on_open(const wire::Open&) {}
  virtual void on_opened(const wire::Opened&, const Tick&) {}
  virtual void on_prove(uint32_t /*path*/, const Tick&) {}
  virtual void on_proved(uint32_t /*path*/, const Tick&) {}
  virtual bool is_opening(uint32_t /*path*/) const { return false; }
  /// The path that is being opened over that local NIC; 0: none is.
  virtual uint32_t opening_over(int /*nic*/) const { return 0; }
  virtual void opening_failed(const std::string& /*why*/, const Tick&) {}
  /// For good.
  virtual void open_no_more() {}
  virtual bool peer_owes_path() const { return false; }
  virtual void dropped(uint32_t /*path*/, uint64_t /*now*/) {}
  /// A NIC has come back, here or there.
  virtual void rails_changed(const Tick&) {}
  /// It is kept for a move to another NIC.
  virtual bool is_for_move(uint32_t /*path*/) const { return false; }
  /// A path carries. `first`: the channel's first.
  virtual void carried(bool /*first*/, const Tick&) {}
  /// Traffic flows: is there something better than as it is?
  virtual void come_home(const Tick&) {}
  virtual void step_spread(const Tick&) {}
  virtual void step_balance(const Tick&) {}
  /// None carries, and what was left is fenced: one is chosen. And until one does: for how long?
  virtual void choose(const Tick&) {}
  virtual void search(const Tick&) {}
  /// step() has something to do at the next tick.
  virtual bool looks_soon(const Tick&) const { return false; }

  /// What the protocol decides is carried out by it: protocol/.
  class Actions;
  class FenceActions;
  class WatchActions;
  class ClosingActions;
  struct Reconnecting;
  /// The receiver fills in what it has.
  virtual void fill_ledger(wire::Fenced& /*fenced*/, Owned) {}
  /// A path has been fenced, and active() carries on. `moved`: it is another path than before.
  virtual void carries_on(bool moved, Owned) = 0;
  /// A path with something posted that a working QP would have completed by now; 0: none.
  virtual uint32_t standing_still(Owned) = 0;
  /// Bytes of the longest work request that is open on a path.
  virtual uint32_t longest_work(uint32_t /*path*/, Owned) const { return 0; }
  /// Nothing has come for long although probes are answered; when `patient`, for longer still.
  virtual void waited(bool patient, Owned) = 0;
  /// The peer asks what has been received; or, as the receiver, has received everything before that message,
  /// and waits.
  virtual void on_ack_query(uint64_t received, Owned) = 0;
  virtual void on_received(const wire::Received& /*received*/, const Tick& /*tick*/) {}
  /// True: it counts.
  virtual bool peer_fenced(const wire::Fenced& fenced, const Tick& tick) = 0;
  /// Its program has closed it: may the receiver lack something of which the program has its buffer back?
  virtual bool has_to_settle(Owned) { return false; }
  /// Does the receiver lack something of what was sent, by its last answer?
  virtual bool misses(Owned) const { return false; }
  /// The receiver waits, and what was sent is not confirmed. look_if_awaited(): is it still?
  virtual bool awaited() const { return false; }
  virtual void look_if_awaited() {}
  /// While it looks for a path: does time count? `wanted`: for the program's sake.
  virtual bool misses_a_path(bool wanted) { return wanted; }
  /// Is a request open that what has been seen so far does not complete?
  virtual bool lacking(Owned) const = 0;
  virtual wire::Close closing_message() const = 0;
  virtual void peer_closed(const wire::Close& close, Owned) = 0;
  /// Sender: the receiver has everything; a request that is open waits for its NIC's report.
  virtual bool waits_for_nic_alone(Owned) const { return false; }
  /// … which no NIC will give any more: all queue pairs are destroyed.
  virtual void nothing_is_sent(Owned) {}
  std::string nic_name(int nic) const { return context_.devices[size_t(nic)].name(); }
  std::string rail_name(int local, int remote) const;
  std::string rail_name(const Path& path) const { return rail_name(path.local_nic(), path.remote_nic()); }

  void emit(trace::EventType type, int nic, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) const;
  Path* active() const { return paths_.active(); }
  Path* carrying(uint32_t id) const { return paths_.carrying(id); }
  /// Paths that carry segments beside active().
  const std::vector<Path*>& lanes(Owned owned) const {
    ownership_.check(owned);
    return paths_.lanes();
  }
  /// The lanes have changed, or what each is to carry: shares[i] of lane i, the active path being number 0.
  virtual void spread(std::span<const balance::LaneShare> /*shares*/, Owned) {}
  /// Is everything over that a lane has carried?
  virtual bool rests(const Path& /*path*/, Owned) const { return true; }
  /// Bit i: what is being sent lies across sockets from NIC i, here and at the peer.
  void memory_is_far(uint8_t local_nics, uint8_t peer_nics) {
    far_nics_.store(uint16_t(local_nics | peer_nics << 8), std::memory_order_relaxed);
  }
  bool is_far(int local, int remote) const {
    const unsigned far = far_nics_.load(std::memory_order_relaxed);
    return (far >> local | far >> (8 + remote)) & 1;
  }
  bool is_far(const Path& path) const { return is_far(path.local_nic(), path.remote_nic()); }
  Request* free_request(uint64_t message);
  /// A test() that found nothing new.
  void nothing_new(Owned owned) {
    ownership_.check(owned);
    if (activity_.empty_test() && context_.resilient()) look_at_silence();
  }
  /// A post that finds no room in the queue of `path`.
  Request* no_room(Path& path, Owned owned) {
    if (activity_.found_no_room()) drain(path, owned);
    nothing_new(owned);
    return nullptr;
  }
  /// A request that free_request() has found begins, and ends.
  void take(Request& request, uint64_t message) {
    request.channel = this;
    request.message = message;
    open_requests_ |= bit_of(message);
    activity_.opened_request();
  }
  void give_back(const Request& request) {
    open_requests_ &= ~bit_of(request.message);
    activity_.finished_request();
  }
  bool in_use(const Request& request) const {
    return (open_requests_ & bit_of(uint64_t(&request - requests_.data()))) != 0;
  }

  // What each post and test looks at lies together, in as few cache lines as it takes: in a job with many
  // channels it has left the cache when its turn comes.
  Activity activity_;
  ProcessContext& context_;
  ChannelOwnership ownership_;
  const std::shared_ptr<ChannelMemory> memory_;

 private:
  std::atomic<Status> status_{Status::kConnecting};
  const bool sender_;
  std::atomic<uint16_t> far_nics_{0};
  /// Bit i: requests_[i] is in use. To find that there would be to wait for memory.
  uint64_t open_requests_ = 0;
  static constexpr uint64_t bit_of(uint64_t message) { return uint64_t{1} << message % wire::kRingLines; }
  static_assert(wire::kRingLines <= 64);

 protected:
  const uint32_t number_;
  PathSet paths_{context_.device_fatals};
  std::array<Request, wire::kRingLines> requests_;

  // --- control messages (messages.cc) ---
  template <typename T>
  void send(wire::Type type, const T& message);
  virtual void handle_greeting(wire::Type type, const control::Message& message, const Tick& tick) = 0;
  wire::Hello hello() const;
  void greeted(const wire::Hello& hello);
  void refuse(const Error& error);
  Peer peer_;
  bool greeted_ = false;
  control::Link link_;

  // --- paths, for those who decide which there are
  void drop(uint32_t id, bool tell_peer);
  int straight(int local) const;
  /// What a probe of `path` shows; `limit()`: an answer that takes longer has failed to come.
  template <typename Limit>
  ProbeSight see_probe(Path& path, Limit&& limit, const Tick& tick);
  RailSight see_rail(int local, int remote, uint64_t now) const;
  uint64_t probe_limit(const Path& path, const Tick& tick) const;
  uint64_t first_probe_limit(const Path& path, const Tick& tick) const;
  void begin_migration(Path& path, trace::DetectedBy by, const std::string& why, const Tick& tick,
                       uint32_t planned_target = 0);
  void use(Path& path, const Tick& tick);
  void note_failure(int local, int remote, const std::string& why);
  std::string what_failed() const;
  bool is_home(int local, int remote) const { return local == home_nic_ && remote == peer_.home_nic(); }
  bool is_home(const Path& path) const { return is_home(path.local_nic(), path.remote_nic()); }
  bool at_home() const { return active() && is_home(*active()); }
  /// It could take over at once, and waits for nothing else.
  bool stands_by(const Path& path) const { return r2ccl::stands_by(path.state, failback_.has(path.id())); }
  bool setting_up() const { return status() == Status::kConnecting; }
  /// What is known of it outside a turn, too.
  TurnSight sight(const Tick& tick) const;
  bool peer_has_closed() const { return closing_.peer_closed(); }

  const int home_nic_;
  const Bounds bounds_;
  PathHalves halves_{context_, memory_, sender_};
  RailRecord rails_;
  Failback failback_;
  MigrationEnd& end_;  // of Sender's or Receiver's
  PathSearch search_;  // the sender's

 private:
  void look_at_silence();

  void look_for_owner(const Tick& tick);

  // paths (paths.cc)
  void run_on_worker(Path& path, const char* call, Result<void> (Path::*work)(Job&));
  void retire(uint32_t id);
  void step_halves(const Tick& tick);
  void take_speed(int nic, int mbps);
  void path_failed(Path& path, const char* what, const Tick& tick);
  void on_drop(uint32_t id, const Tick& tick);
  void on_peer_nic(const wire::Nic& nic, const Tick& tick);

  // messages (messages.cc)
  void handle(const control::Message& message, const Tick& tick);
  void take_in(const control::Message& message, const Tick& tick);
  void on_close(const control::Message& message);
  void peer_failed(const control::Message& message);

  void remove_lane(const Path& path, Owned);
  void on_lane(uint32_t id);
  void on_rest(uint32_t id);

  // watchdog and migration (watchdog.cc, migration.cc)
  void step_watchdog(const Tick& tick);
  void leave_suspects(const Tick& tick);
  ProbeState look_at_probe(Path& path, const Tick& tick);
  void look_for_whole_packets(const Tick& tick);
  void abandon(Path& path, Owned);
  bool begin_leaving(const Path& path, trace::DetectedBy by, bool planned, const Tick& tick);
  void take_out(Path& path, bool planned, const Tick& tick, Owned);
  void stop(Path& path);
  void note_leaving(const Path& path, trace::DetectedBy by, const std::string& why, const Tick& tick);
  void note_told(const Path& path, trace::DetectedBy by, const std::string& why);
  void look_for_suspects(Owned);
  void look_at_probes(const Tick& tick);

  // the fence (fence.cc)
  void begin_fence(const Tick& tick);
  void fence_given_up(const Tick& tick);
  void step_fence(const Tick& tick);
  FenceSight see_left_path();
  DestructionSight see_destruction() const;
  std::string words(NoFence why, const Tick& tick);
  void look_at_unfenced(const Tick& tick);
  DeviceSight see_device(const Path& path) const;
  void look_at_removal(const Tick& tick);
  void unfenceable(const std::string& why);
  void cannot_fence(const std::string& why, const Tick& tick);
  void fence_done(const Tick& tick);
  void send_fenced(bool stopped, Owned);
  void retire_unfenced();

  bool activate(Path& path, bool first, bool moved, const Tick& tick, Owned);
  void note_carried(const Path& path, bool first, uint64_t moving_since, bool comes_home);
  void on_migrate(const wire::Migrate& migrate, const Tick& tick);
  void on_fenced(const wire::Fenced& fenced, const Tick& tick);
  void on_use(const wire::Use& use, const Tick& tick);
  void begin_search(const Tick& tick);

  /// Changes the status unless the channel has failed or closed, which is for good.
  bool advance(Status to);

  // closing (closing.cc)
  void closed_early();
  Urgency step_after_peer_closed(const Tick& tick);
  void leave_paths(Owned);
  TurnSight look(const Tick& tick, bool closes) const;
  Urgency act(TurnAct act, const Tick& tick);
  Urgency urgency(const TurnSight& turn, bool settles, const Tick& tick) const;
  Urgency step_after_error(const Tick& tick);
  bool is_closing() const;
  void connection_broke(const Tick& tick);
  void connection_restored();
  void look_after_set_up(const Tick& tick);
  std::string too_late() const;
  void step_outage(const Tick& tick);
  /// Takes in what is known of the peer, before a path is left that has failed.
  void hear(const Tick& tick);
  void end_outage();
  void peer_gone(const std::string& why);
  Urgency step_closing(const Tick& tick);
  bool settles(const Tick& tick);
  void release_buffers();
  void give_set_up_up(const Tick& tick);
  void say_last_word();
  void hang_up();

  Error error_;
  std::atomic<const PlanKnowledge::Plan*> plan_{nullptr};

  // control connection
  Outage outage_;
  MovedSight moved_;
  control::Descriptor reconnection_;  // being made; the receiver keeps it, to learn of the process's end
  PeerEnd peer_end_;
  SetUpPatience set_up_;
  std::string set_up_error_;  // why a connection could not even be begun
  Closing closing_;
  uint64_t created_ = 0;
  OwnerClaim claim_;
  std::mutex close_mutex_;
  std::condition_variable close_done_;
  bool torn_down_ = false;

  // watchdog
  std::atomic<bool> suspected_{false};
  Watchdog watchdog_;
  std::shared_ptr<health::PeerRails> peer_rails_;  // shared by the channels to one process

  // migration
  uint64_t migration_started_ = 0;  // now
  uint64_t moving_since_ = 0;       // now; through epochs between which none carried. 0: one carries
  int left_nic_ = 0;
  // The fence of what is left.
  FenceClock fence_;
  std::string no_fence_since_;  // why this end could not fence
};

/// An error as it travels.
wire::Sentence sentence(const Error& error);

template <typename Limit>
ProbeSight Channel::see_probe(Path& path, Limit&& limit, const Tick& tick) {
  switch (look_at_probe(path, tick)) {
    case ProbeState::kIdle:
      return ProbeSight::kNone;
    case ProbeState::kAnswered:
      return ProbeSight::kAnswered;
    case ProbeState::kWaiting: {
      const uint64_t most = limit();
      path.push_probe(wants_push(path.probe_age(tick.alive), most), tick.alive);
      return awaits(path.probe_awaited(tick.alive), most);
    }
    case ProbeState::kFailed:
      break;
  }
  return ProbeSight::kFailed;
}

template <typename T>
void Channel::send(wire::Type type, const T& message) {
  link_.say(uint16_t(type), std::as_bytes(std::span(&message, 1)));
}

}  // namespace r2ccl
