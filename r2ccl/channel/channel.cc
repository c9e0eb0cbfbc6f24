#include "r2ccl/channel/channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"

namespace r2ccl {
namespace {

std::atomic<uint32_t> g_next_number{0};

constexpr uint64_t kFirstFailbackWaitNs = 100 * kNsPerMs;
constexpr uint64_t kNearNs = 150 * kNsPerMs;         // more than the service thread sleeps at a time
constexpr uint64_t kLongestLookNs = 150 * kNsPerMs;  // a round that took longer was our own pause
// What is lacking when the peer has closed is waited for so long; and what a closing sender repeats.
constexpr uint64_t kLingerNs = 2000 * kNsPerMs;
// … and a report of the NIC on what the receiver has.
constexpr uint64_t kLastAckNs = 10 * kNsPerMs;
// How long a closed channel answers a peer that has not closed its end. The network may carry nothing for
// seconds, and the other one then asks for our last word over the next connection.
constexpr uint64_t kLastWordNs = 15'000 * kNsPerMs;
// How long one that is closed waits for the receiver's word on messages that were sent from copies; and again
// while something is being sent once more.
constexpr uint64_t kSettleNs = 100 * kNsPerMs;

}  // namespace

Channel::Channel(Core& core, MigrationEnd& end, bool sender, int home_nic, control::Stream stream,
                 const control::Token& token)
    : core_(core),
      memory_(ChannelMemory::make()),
      link_(std::move(stream), token, sender),
      sender_(sender),
      number_(g_next_number.fetch_add(1)),
      home_nic_(home_nic),
      created_(now_ns()),
      home_rail_({nanoseconds(core.config.failback_settle), kFirstFailbackWaitNs,
                  nanoseconds(core.config.failback_ceiling)}),
      spread_timer_(nanoseconds(core.config.failback_settle), nanoseconds(core.config.failback_ceiling),
                    core.process + number_ * 0x9e3779b97f4a7c15),
      stall_(nanoseconds(core.config.suspect_after), nanoseconds(core.config.stuck_after)),
      end_(end) {}

// Nearly always nothing is left to do: see begin_closing().
Channel::~Channel() {
  try {
    destroy_paths();
  } catch (const std::bad_alloc&) {  // then they are destroyed here
  }
}

void Channel::emit(trace::EventType type, int nic, uint64_t a, uint64_t b, uint64_t c) const {
  trace::Writer::instance().emit(type, uint16_t(nic), number_, a, b, c, uint32_t(peer_hello_.process));
}

wire::Sentence sentence(const Error& error) {
  wire::Sentence words{};
  words.code = uint32_t(error.code);
  std::strncpy(words.text, error.message.c_str(), sizeof words.text - 1);
  return words;
}

std::string Channel::peer_name() const {
  if (peer_hello_.host[0]) return peer_hello_.host;
  return peer_hello_.where.port ? "the peer at " + control::text(peer_hello_.where) : "the peer";
}

std::string Channel::rail_name(int local, int remote) const {
  return "NIC " + nic_name(local) + " of " + core_.host + " to NIC " + peer_nic_name(remote) + " of " +
         peer_name();
}

// --- data path ------------------------------------------------------------------------------------------

Request* Channel::free_request(uint64_t message) {
  Request& request = requests_[message % wire::kRingLines];
  if (request.in_use || in_use_.load(std::memory_order_relaxed) >= uint32_t(kMaxRequests)) return nullptr;
  return &request;
}

bool Channel::drain(Path& path, HasTurn turn) {
  if (!path.data) return false;  // fenced by destroying it: what it has not reported yet will be replayed
  std::array<ibv_wc, kBatch> completions;
  const int count = path.queue.poll(completions);
  if (count < 0) {
    if (carries(path)) suspect(path, IBV_WC_FATAL_ERR, turn);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[size_t(i)];
    const auto kind = uint32_t(completion.wr_id >> 32);
    const auto detail = uint32_t(completion.wr_id);
    if (kind == Path::kWorkSentinel) {
      // Carried out, it tells that the QP is in ERR in its driver's words only.
      if (completion.status != IBV_WC_SUCCESS) path.sentinel(detail);
    } else if (completion.status != IBV_WC_SUCCESS) {
      if (carries(path)) suspect(path, completion.status, turn);
    } else {
      switch (kind) {
        case Path::kWorkData:
          ++path.completed;
          count_progress();
          on_data_sent(path, detail, turn);
          break;
        case Path::kWorkCts:
          path.completed = detail;
          break;
        case Path::kWorkReceive:
          count_progress();
          on_arrival(path, completion, turn);
          break;
        default:
          break;
      }
    }
  }
  if (count > 0) after_drain(path, turn);
  if (path.flushes()) look_at_flush(path, turn);
  return size_t(count) == completions.size();
}

void Channel::drain_all(HasTurn turn) {
  for (auto& path : paths_) {
    if ((!carries(*path) && path->state != PathState::kFencing) || path->in_hand()) continue;
    for (uint32_t handled = 0; handled < Path::kReceiveDepth + Path::kSendDepth; handled += kBatch)
      if (!drain(*path, turn)) break;
  }
}

void Channel::suspect(Path& path, ibv_wc_status status, HasTurn turn) {
  if (path.condemned || peer_closed_) return;
  path.last_status = status;
  if (!core_.resilient()) {
    fail(Error{ErrorCode::kNicFailed, rail_name(path) + ": " + verbs::describe(status) + " on channel " +
                                          std::to_string(number_) + "; R2CC_MODE=0 has no other path"});
    return;
  }
  if (!advance(Status::kMigrating)) return;
  path.condemn(trace::DetectedBy::kCompletion, verbs::describe(status), turn);
  suspected_.store(true, std::memory_order_release);
  core_.kick();
}

void Channel::suspect_post(Path& path, int error, HasTurn turn) {
  R2_WARN("NET/R2CCL: channel %u: posting on %s failed: %s", number_, rail_name(path).c_str(),
          std::strerror(error));
  suspect(path, IBV_WC_GENERAL_ERR, turn);
}

void Channel::fail(Error error) {
  const std::lock_guard lock(close_mutex_);
  const Status now = status();
  if (now == Status::kFailed || now == Status::kClosed) return;
  error_ = std::move(error);
  status_.store(Status::kFailed, std::memory_order_release);
  core_.kick();
}

void Channel::out_of_memory() noexcept {
  try {
    fail(Error{ErrorCode::kOutOfResources,
               "channel " + std::to_string(number_) + ": the service thread has run out of memory"});
  } catch (const std::bad_alloc&) {
    fail(Error{ErrorCode::kOutOfResources, "no memory"});  // short enough to need none
  }
}

bool Channel::advance(Status to) {
  Status now = status();
  while (now != Status::kFailed && now != Status::kClosed)
    if (status_.compare_exchange_weak(now, to, std::memory_order_release, std::memory_order_acquire))
      return true;
  return false;
}

void Channel::close_and_wait() {
  std::unique_lock lock(close_mutex_);
  close_requested.store(true, std::memory_order_release);
  core_.kick();
  // The NICs' workers destroy the QPs. One whose driver does not answer is not waited for: see
  // Graveyard::closed().
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!close_done_.wait_for(lock, std::chrono::milliseconds(50), [this] { return torn_down_; })) {
    if (core_.ended.load(std::memory_order_acquire)) return;  // the process exits: nobody is there to do it
    if (std::chrono::steady_clock::now() < deadline) continue;
    R2_WARN("NET/R2CCL: channel %u could not be torn down within 5 s", number_);
    return;
  }
}

// --- service thread -------------------------------------------------------------------------------------

// NCCL may end a communicator that is being made without a word. (A process that is stopped asks for nothing;
// its time does not count.)
void Channel::look_for_owner(const Tick& tick) {
  if (owner_.load() != Owner::kAwaited) return;
  const uint64_t before = std::exchange(asked_look_, tick.now);
  unasked_for_ += before == 0 ? 0 : std::min(tick.now - before, kLongestLookNs);
  if (asked_.exchange(false)) unasked_for_ = 0;
  if (unasked_for_ <= nanoseconds(core_.config.connect_bound)) return;
  Owner awaited = Owner::kAwaited;
  if (!owner_.compare_exchange_strong(awaited, Owner::kGivenUp)) return;
  R2_INFO("NET/R2CCL: channel %u: nobody has asked for it for %lld ms (R2CC_CONNECT_MS); it is closed",
          number_, static_cast<long long>(core_.config.connect_bound.count()));
  close_requested.store(true, std::memory_order_release);
}

Urgency Channel::step(const Tick& tick) {
  look_for_owner(tick);
  const bool closes = closing_ || close_requested.load(std::memory_order_acquire);
  if (closes || status() == Status::kFailed) core_.incidents.gave_up(this);
  if (closes && !settles(tick)) {
    step_closing(tick);
    return Urgency::kBusy;
  }
  if (status() == Status::kFailed) {
    if (!closed_sent_) tell_failure();
    if (!active_ && end_.epoch() == 0) give_set_up_up(tick);  // it has never been used
    if (!greeted_) outage_ = Outage{};
    if (outage_.lasts)
      step_outage(tick);  // the peer is to learn the reason, for as long as it may wait for it
    if (outage_.lasts && tick.now - outage_.began > nanoseconds(core_.config.control_bound)) {
      outage_.lasts = false;
      link_.close();
    }
    return outage_.lasts ? Urgency::kBusy : Urgency::kIdle;
  }
  if (setting_up() && tick.now > created_ + nanoseconds(core_.config.connect_bound)) {
    fail(Error{ErrorCode::kSystem, too_late()});
    return Urgency::kBusy;
  }
  if (!gone_.empty()) peer_gone(gone_);
  if (setting_up()) look_after_set_up(tick);
  if (outage_.lasts) step_outage(tick);
  if (!greeted_) return Urgency::kBusy;
  if (status() == Status::kFailed) return Urgency::kBusy;
  if (peer_closed_) return step_after_peer_closed(tick);
  step_makings(tick);
  if (sender_)
    step_opening(tick);
  else
    step_receiver_proofs(tick);
  if (!core_.resilient()) return status() == Status::kConnecting ? Urgency::kBusy : Urgency::kIdle;
  if (status() != Status::kConnecting) {
    step_watchdog(tick);
    if (status() == Status::kFailed || peer_closed_) return Urgency::kBusy;
    step_migration(tick);
    if (sender_) {
      note_traffic(tick);
      step_failback(tick);
      if (core_.balances())
        step_balance(tick);
      else
        step_spread(tick);
    }
  }
  for (auto& path : graveyard_.buried()) look_at_probe(*path, tick);
  graveyard_.dig(*core_.workers, tick.now, end_.phase() == Phase::kRunning);
  return closes ? Urgency::kWatching : urgency(tick);
}

Urgency Channel::urgency(const Tick& tick) const {
  const bool probing = std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
    return path->probe_state() == ProbeState::kWaiting;
  });
  const Phase phase = end_.phase();
  const bool failback_is_near =
      sender_ && !at_home() && home_may_work() && home_rail_.should_try_soon(tick.now, kNearNs);
  if (phase == Phase::kFencing || (phase == Phase::kRunning && suspected_.load(std::memory_order_relaxed)) ||
      (phase == Phase::kChoosing && probing))
    return Urgency::kHot;
  if (phase == Phase::kChoosing || probing) return Urgency::kWatching;
  return quiet_.asks() || phase != Phase::kRunning || awaited() || outage_.lasts || opening_.path != 0 ||
                 probation_path_ != 0 || spread_path_ != 0 || !graveyard_.buried().empty() ||
                 status() == Status::kConnecting || failback_is_near || (sender_ && lacks_standby(tick))
             ? Urgency::kBusy
             : Urgency::kIdle;
}

// A peer that has closed brings nothing any more. What it delivered before may still lie in the completion
// queue; whatever is lacking after that is an error, not something to wait for.
Urgency Channel::step_after_peer_closed(const Tick& tick) {
  if (setting_up()) {
    fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": " + peer_name() +
                                         " closed its end while the connection was being made"});
    return Urgency::kBusy;
  }
  const TurnGuard turn(turn_);
  drain_all(turn);
  if (!lacking(turn)) {
    lacking_since_ = 0;
    return Urgency::kIdle;
  }
  if (lacking_since_ == 0) lacking_since_ = tick.now;
  if (waits_for_nic_alone(turn)) {
    // The last acknowledgement was lost, and the peer's queue pair, which would repeat it, is gone. Until its
    // own queue pair is gone, too, the NIC reads the buffer again and again.
    if (tick.now - lacking_since_ <= kLastAckNs) return Urgency::kBusy;
    leave_paths(turn);
    if (graveyard_.closed(*core_.workers)) nothing_is_sent(turn);
    return Urgency::kBusy;
  }
  if (tick.now - lacking_since_ > kLingerNs)
    fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": " + peer_name() +
                                         " closed its end while messages were open"});
  return Urgency::kBusy;
}

// It failed before it carried anything: perhaps NCCL never asks for it again, so that nobody closes it.
void Channel::give_set_up_up(const Tick& tick) {
  for (auto& making : makings_) making->unwanted = true;
  step_makings(tick);
  destroy_paths();
  opening_ = {};
}

void Channel::tell_failure() {
  closed_sent_ = true;
  if (greeted_) send(wire::Type::kFail, sentence(error_));
  emit(trace::EventType::kChannelFailed, home_nic_, uint64_t(error_.code));
}

// For good.
void Channel::leave_paths(HasTurn turn) {
  active_ = nullptr;
  lanes_.clear();
  spread({}, turn);
  for (auto& path : paths_) abandon(*path, turn);
  opening_ = {};
  destroy_paths();
}

void Channel::begin_closing(const Tick& tick) {
  const TurnGuard turn(turn_);
  // Our last word goes out before the QPs do: the peer must not take their end for a failure. A program that
  // closes at once when it sees an error must not keep the reason from the peer.
  if (!closed_sent_ && status() == Status::kFailed)
    tell_failure();
  else if (!closed_sent_ && greeted_)
    send(wire::Type::kClose, closing_words());
  closed_sent_ = true;
  close_since_ = tick.now;
  if (sender_ && !greeted_) {  // it has no keys to say anything with
    outage_ = Outage{};
    link_.close();
  }
  emit(trace::EventType::kChannelClosing, home_nic_);
  leave_paths(turn);
  closing_ = true;  // not before: should memory be short, all of it is done once more
  const std::lock_guard lock(close_mutex_);
  status_.store(Status::kClosed, std::memory_order_release);
}

// The program has its buffers of small messages back before the receiver has said that it has them; what was
// lost of those since can be sent again for as long as this channel lives.
bool Channel::settles(const Tick& tick) {
  if (closing_ || !greeted_ || peer_closed_ || status() == Status::kFailed) return false;
  const TurnGuard turn(turn_);
  if (busy() || !unconfirmed(turn) || core_.left_unanswered(peer_hello_.process, tick.now)) return false;
  if (settles_since_ == 0) {
    settles_since_ = tick.now;
    settles_until_ = tick.now + kSettleNs;
    answered_ = false;
  }
  if (misses(turn) || end_.phase() != Phase::kRunning)
    settles_until_ = std::min(tick.now + kSettleNs, settles_since_ + kLingerNs);
  if (tick.now > settles_until_) {
    // Its other channels, which are closed next, do not wait. Where the connection is broken its process is
    // not to blame.
    if (!answered_ && link_.up()) core_.unanswered[peer_hello_.process] = tick.now;
    return false;
  }
  hear_remind(0, turn);
  return true;
}

void Channel::step_closing(const Tick& tick) {
  if (!closing_) begin_closing(tick);
  step_makings(tick);
  if (!torn_down_) {
    if (!graveyard_.closed(*core_.workers)) return;
    for (const Graveyard::Grave& grave : graveyard_.graves())
      if (!grave.job->done() || (grave.outcome->refused && !core_.device_gone[size_t(grave.nic)]))
        R2_WARN(
            "NET/R2CCL: channel %u: NIC %s did not let go of a queue pair; it may still touch its buffers",
            number_, nic_name(grave.nic).c_str());
    const std::lock_guard lock(close_mutex_);
    torn_down_ = true;
    close_done_.notify_all();
  }
  if (outage_.lasts) step_outage(tick);
  if ((!link_.open() && !outage_.lasts) || peer_closed_ || tick.now - close_since_ > kLastWordNs) {
    if (link_.open()) link_.flush();
    link_.close();
    finished_ = true;
  }
}

void Channel::on_socket(const Tick& tick) {
  if (!link_.open()) return;
  const size_t had = link_.waiting();
  const bool alive = link_.fill();
  if (link_.waiting() != had) set_up_.heard_at = tick.alive;
  control::Message message;
  for (;;) {
    Result<bool> next = link_.next(message);
    if (!next) {
      if (greeted_ || set_up_.breaks == 0)
        R2_WARN("NET/R2CCL: channel %u: %s; the connection is closed", number_, next.error().message.c_str());
      if (core_.resilient() && (sender_ || greeted_)) {
        connection_broke(tick);
      } else {
        link_.close();
        fail(next.error());
      }
      return;
    }
    if (!*next) break;
    handle(message, tick);
    if (!link_.open()) return;
  }
  if (outage_.lasts && greeted_ && link_.up()) connection_restored();
  if (!alive || !link_.flush()) connection_broke(tick);
}

// --- control messages -----------------------------------------------------------------------------------

wire::Hello Channel::hello() const {
  wire::Hello hello{};
  hello.magic = wire::kHandleMagic;
  hello.version = wire::kWireVersion;
  hello.mode = uint8_t(core_.config.mode);
  hello.strict_ack = core_.strict_ack();
  hello.process = core_.process;
  hello.requests = kMaxRequests;
  hello.ring_lines = wire::kRingLines;
  hello.nics = uint8_t(core_.devices.size());
  hello.home_nic = uint8_t(home_nic_);
  hello.copied_bytes = uint16_t(core_.copied_bytes());
  hello.channel = number_;
  if (auto where = core_.endpoint(); where) hello.where = *where;
  std::strncpy(hello.host, core_.host.c_str(), sizeof hello.host - 1);
  for (size_t i = 0; i < core_.devices.size(); ++i)
    std::strncpy(hello.nic_names[i], core_.devices[i].name().c_str(), sizeof hello.nic_names[i] - 1);
  return hello;
}

Result<void> Channel::check_hello(const wire::Hello& peer) const {
  const std::string who =
      peer.host[0] ? std::string(peer.host, strnlen(peer.host, sizeof peer.host)) : "the peer";
  if (peer.magic != wire::kHandleMagic)
    return Error{ErrorCode::kBadHandle, who + " does not speak R2CCL's protocol"};
  if (peer.version != wire::kWireVersion)
    return Error{ErrorCode::kVersionMismatch, who + " speaks wire version " + std::to_string(peer.version) +
                                                  ", " + core_.host + " speaks " +
                                                  std::to_string(wire::kWireVersion)};
  if (peer.mode != uint8_t(core_.config.mode))
    return Error{ErrorCode::kModeMismatch, who + " runs R2CC_MODE=" + std::to_string(peer.mode) + ", " +
                                               core_.host +
                                               " runs R2CC_MODE=" + std::to_string(int(core_.config.mode))};
  if ((peer.strict_ack != 0) != core_.strict_ack())
    return Error{ErrorCode::kModeMismatch, who + " runs R2CC_STRICT_ACK=" + std::to_string(peer.strict_ack) +
                                               ", " + core_.host + " the opposite"};
  if (peer.ring_lines != wire::kRingLines || peer.requests != uint32_t(kMaxRequests) || peer.nics == 0 ||
      peer.nics > wire::kMaxNics || peer.home_nic >= peer.nics)
    return Error{ErrorCode::kVersionMismatch,
                 who + " has other limits (requests, ring, NICs) than this plugin"};
  return {};
}

void Channel::greeted(const wire::Hello& peer) {
  peer_hello_ = peer;
  peer_hello_.host[sizeof peer_hello_.host - 1] = '\0';
  for (auto& name : peer_hello_.nic_names) name[sizeof name - 1] = '\0';
  peer_home_nic_ = peer.home_nic;
  probe_times_ = core_.probe_times(peer.process);
  greeted_ = true;
}

void Channel::refuse(const Error& error) {
  send(wire::Type::kRefuse, sentence(error));
  closed_sent_ = true;
  fail(error);
}

void Channel::handle(const control::Message& message, const Tick& tick) {
  const auto type = wire::Type(message.type);
  if (type == wire::Type::kRefuse || type == wire::Type::kFail) {
    auto words = message.as<wire::Sentence>();
    if (!words) return;
    words->text[sizeof words->text - 1] = '\0';
    closed_sent_ = true;  // nothing to tell a peer that told us
    const bool known =
        words->code > uint32_t(ErrorCode::kOk) && words->code <= uint32_t(ErrorCode::kAfterFork);
    fail(Error{
        known ? ErrorCode(words->code) : ErrorCode::kSystem,
        (type == wire::Type::kRefuse ? "the connection was refused: " : "told by " + peer_name() + ": ") +
            std::string(words->text)});
    emit(trace::EventType::kChannelFailed, home_nic_, words->code);
    return;
  }
  if (!greeted_) {
    handle_greeting(type, message, tick);
    return;
  }
  if (type == wire::Type::kReceived) {
    answered_ = true;
    core_.unanswered.erase(peer_hello_.process);
  }
  if (closing_ || status() == Status::kFailed) {
    if (type == wire::Type::kClose) {
      const TurnGuard turn(turn_);
      peer_closed_ = true;
    }
    return;
  }
  // Calls `method` with the payload as a T; a payload of another size is ignored (and was authenticated: a
  // bug).
  const auto with = [&](auto sample, auto&& call) {
    if (auto payload = message.as<decltype(sample)>()) call(*payload);
  };
  switch (type) {
    case wire::Type::kOpen:
      with(wire::Open{}, [&](const wire::Open& m) { on_open(m, tick); });
      break;
    case wire::Type::kOpened:
      with(wire::Opened{}, [&](const wire::Opened& m) { on_opened(m, tick); });
      break;
    case wire::Type::kProve:
      with(wire::PathMessage{}, [&](const wire::PathMessage& m) { on_prove(m.path, tick); });
      break;
    case wire::Type::kProved:
      with(wire::PathMessage{}, [&](const wire::PathMessage& m) { on_proved(m.path, tick); });
      break;
    case wire::Type::kDrop:
      with(wire::PathMessage{}, [&](const wire::PathMessage& m) { on_drop(m.path, tick); });
      break;
    case wire::Type::kMigrate:
      with(wire::Migrate{}, [&](const wire::Migrate& m) { on_migrate(m, tick); });
      break;
    case wire::Type::kFenced:
      with(wire::Fenced{}, [&](const wire::Fenced& m) { on_fenced(m, tick); });
      break;
    case wire::Type::kUse:
      with(wire::Use{}, [&](const wire::Use& m) { on_use(m, tick); });
      break;
    case wire::Type::kNic:
      with(wire::Nic{}, [&](const wire::Nic& m) { on_peer_nic(m, tick); });
      break;
    case wire::Type::kLane:
      with(wire::PathMessage{}, [&](const wire::PathMessage& m) { on_lane(m.path); });
      break;
    case wire::Type::kRest:
      with(wire::PathMessage{}, [&](const wire::PathMessage& m) { on_rest(m.path); });
      break;
    case wire::Type::kRemind:
      with(wire::Received{}, [&](const wire::Received& m) {
        const TurnGuard turn(turn_);
        hear_remind(m.received, turn);
      });
      break;
    case wire::Type::kReceived:
      with(wire::Received{}, [&](const wire::Received& m) { hear_received(m, tick); });
      break;
    case wire::Type::kClose:
      with(wire::Close{}, [&](const wire::Close& m) {
        const TurnGuard turn(turn_);
        peer_closed_ = true;
        peer_closed(m, turn);
      });
      break;
    default:
      R2_WARN("NET/R2CCL: channel %u: unexpected control message %u", number_, unsigned(message.type));
  }
}

}  // namespace r2ccl
