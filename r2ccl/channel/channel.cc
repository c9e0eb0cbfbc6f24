// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"

namespace r2ccl {
namespace {

std::atomic<uint32_t> g_next_number{0};

}  // namespace

Channel::Channel(ProcessContext& context, MigrationEnd& end, bool sender, int home_nic,
                 control::Stream stream, const control::Token& token)
    : context_(context),
      memory_(ChannelMemory::make()),
      link_(std::move(stream), token, sender),
      number_(g_next_number.fetch_add(1)),
      home_nic_(home_nic),
      bounds_{nanoseconds(context.config.fail_bound), nanoseconds(context.config.probe_deadline)},
      failback_({nanoseconds(context.config.failback_settle), Failback::kFirstWaitNs,
                 nanoseconds(context.config.failback_ceiling)}),
      end_(end),
      search_(bounds_.fail, bounds_.proven()),
      sender_(sender),
      outage_(nanoseconds(context.config.control_bound)),
      peer_end_(nanoseconds(context.config.fence_bound)),
      created_(now_ns()),
      watchdog_(nanoseconds(context.config.suspect_after), nanoseconds(context.config.stuck_after)),
      fence_(sender, nanoseconds(context.config.fence_bound), nanoseconds(context.config.removal_bound),
             nanoseconds(context.config.fence_delay)) {}

// Nearly always nothing is left to do: see begin_closing().
Channel::~Channel() {
  try {
    paths_.destroy_all(*context_.workers);
  } catch (const std::bad_alloc&) {  // then they are destroyed here
  }
}

void Channel::emit(trace::EventType type, int nic, uint64_t a, uint64_t b, uint64_t c) const {
  trace::Writer::instance().emit(type, uint16_t(nic), number_, a, b, c, uint32_t(peer_.process()));
}

wire::Sentence sentence(const Error& error) {
  wire::Sentence words{};
  words.code = uint32_t(error.code);
  std::strncpy(words.text, error.message.c_str(), sizeof words.text - 1);
  return words;
}

std::string Channel::rail_name(int local, int remote) const {
  return "NIC " + nic_name(local) + " of " + context_.host + " to NIC " + peer_.nic_name(remote) + " of " +
         peer_.name();
}

// --- data path ------------------------------------------------------------------------------------------

Request* Channel::free_request(uint64_t message) {
  Request& request = requests_[message % wire::kRingLines];
  if (request.in_use || activity_.requests() >= uint32_t(kMaxRequests)) return nullptr;
  return &request;
}

bool Channel::drain(Path& path, Owned owned) {
  if (!path.data) return false;  // fenced by destroying it: what it has not reported yet will be replayed
  std::array<ibv_wc, kBatch> completions;
  const int count = path.queue.poll(completions);
  if (count < 0) {
    if (path.carries()) suspect(path, IBV_WC_FATAL_ERR, owned);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[size_t(i)];
    const auto kind = uint32_t(completion.wr_id >> 32);
    const auto detail = uint32_t(completion.wr_id);
    if (kind == Path::kWorkSentinel) {
      // Carried out, it shows that the QP is in ERR for its driver only.
      if (completion.status != IBV_WC_SUCCESS) path.sentinel(detail);
    } else if (completion.status != IBV_WC_SUCCESS) {
      if (path.carries()) suspect(path, completion.status, owned);
    } else {
      switch (kind) {
        case Path::kWorkData:
          ++path.completed;
          activity_.moved();
          on_data_sent(path, detail, owned);
          break;
        case Path::kWorkCts:
          path.completed = detail;
          break;
        case Path::kWorkReceive:
          activity_.moved();
          on_arrival(path, completion, owned);
          break;
        default:
          break;
      }
    }
  }
  if (count > 0) after_drain(path, owned);
  if (path.flushes()) look_at_flush(path, owned);
  return size_t(count) == completions.size();
}

void Channel::drain_all(Owned owned) {
  for (auto& path : paths_) {
    if (!path->brings() || path->worker_busy()) continue;
    for (uint32_t handled = 0; handled < Path::kReceiveDepth + Path::kSendDepth; handled += kBatch)
      if (!drain(*path, owned)) break;
  }
}

void Channel::suspect(Path& path, ibv_wc_status status, Owned owned) {
  if (path.failure || closing_.peer_closed()) return;
  path.last_status = status;
  if (!context_.resilient()) {
    fail(Error{ErrorCode::kNicFailed, rail_name(path) + ": " + verbs::describe(status) + " on channel " +
                                          std::to_string(number_) + "; R2CC_MODE=0 has no other path"});
    return;
  }
  if (!advance(Status::kMigrating)) return;
  path.mark_failed(trace::DetectedBy::kCompletion, verbs::describe(status), owned);
  suspected_.store(true, std::memory_order_release);
  context_.kick();
}

void Channel::suspect_post(Path& path, int error, Owned owned) {
  R2_WARN("NET/R2CCL: channel %u: posting on %s failed: %s", number_, rail_name(path).c_str(),
          std::strerror(error));
  suspect(path, IBV_WC_GENERAL_ERR, owned);
}

void Channel::fail(Error error) {
  const std::lock_guard lock(close_mutex_);
  const Status now = status();
  if (now == Status::kFailed || now == Status::kClosed) return;
  error_ = std::move(error);
  status_.store(Status::kFailed, std::memory_order_release);
  context_.kick();
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
  context_.kick();
  // The NICs' workers destroy the QPs. One whose driver does not answer is not waited for: see
  // RetiredPaths::closed().
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!close_done_.wait_for(lock, std::chrono::milliseconds(50), [this] { return torn_down_; })) {
    if (context_.ended.load(std::memory_order_acquire))
      return;  // the process exits: nobody is there to do it
    if (std::chrono::steady_clock::now() < deadline) continue;
    R2_WARN("NET/R2CCL: channel %u could not be torn down within 5 s", number_);
    return;
  }
}

// --- service thread -------------------------------------------------------------------------------------

void Channel::look_for_owner(const Tick& tick) {
  if (!claim_.look(tick.now, nanoseconds(context_.config.connect_bound))) return;
  R2_INFO("NET/R2CCL: channel %u: nobody has asked for it for %lld ms (R2CC_CONNECT_MS); it is closed",
          number_, static_cast<long long>(context_.config.connect_bound.count()));
  close_requested.store(true, std::memory_order_release);
}

Urgency Channel::step(const Tick& tick) {
  look_for_owner(tick);
  const bool wants_to_close = closing_.begun() || close_requested.load(std::memory_order_acquire);
  const bool settling = wants_to_close && settles(tick);  // it may still go on over another path
  for (size_t i = 0; i < kTurnActs; ++i) {
    TurnSight seen = sight(tick);
    seen.closes = wants_to_close && !settling;
    if (!is_due(TurnAct(i), seen)) continue;
    const Urgency urgency = act(TurnAct(i), tick);
    if (ends_turn(TurnAct(i))) return urgency;
  }
  return urgency(tick, settling);
}

TurnSight Channel::sight(const Tick& tick) const {
  TurnSight seen;
  seen.failed = status() == Status::kFailed;
  seen.setting_up = setting_up();
  seen.late = tick.now > created_ + nanoseconds(context_.config.connect_bound);
  seen.peer_ended = peer_end_.known();
  seen.outage = outage_.lasts();
  seen.greeted = greeted_;
  seen.peer_closed = closing_.peer_closed();
  seen.resilient = context_.resilient();
  seen.active = active() != nullptr;
  seen.suspected = suspected_.load(std::memory_order_acquire);
  seen.phase = end_.phase();
  seen.own_fence = end_.own_fence();
  return seen;
}

// What it returns counts where ends_turn() holds.
Urgency Channel::act(TurnAct act, const Tick& tick) {
  switch (act) {
    case TurnAct::kClose:
      context_.failure_log.gave_up(this);
      return step_closing(tick);
    case TurnAct::kAfterError:
      context_.failure_log.gave_up(this);
      return step_after_error(tick);
    case TurnAct::kTooLate:
      fail(Error{ErrorCode::kSystem, too_late()});
      break;
    case TurnAct::kPeerEnded:
      peer_gone(peer_end_.why());
      break;
    case TurnAct::kSetUp:
      look_after_set_up(tick);
      break;
    case TurnAct::kOutage:
      step_outage(tick);
      break;
    case TurnAct::kPeerClosed:
      return step_after_peer_closed(tick);
    case TurnAct::kHalves:
      step_halves(tick);
      break;
    case TurnAct::kPaths:
      step_paths(tick);
      break;
    case TurnAct::kTime:
      watchdog_.tick(tick.alive);
      activity_.look(tick.now);
      break;
    case TurnAct::kLeave:
      leave_suspects(tick);
      break;
    case TurnAct::kWatch:
      step_watchdog(tick);
      break;
    case TurnAct::kProbes:
      look_at_probes(tick);
      break;
    case TurnAct::kFence:
      step_fence(tick);
      break;
    case TurnAct::kRemoval:
      look_at_removal(tick);
      break;
    case TurnAct::kUnfenced:
      look_at_unfenced(tick);
      break;
    case TurnAct::kChoose:
      choose(tick);
      break;
    case TurnAct::kSearch:
      search(tick);
      break;
    case TurnAct::kComeHome:
      come_home(tick);
      break;
    case TurnAct::kSpread:
      spread_traffic(tick);
      break;
    case TurnAct::kRetired:
      for (auto& path : paths_.retired().retired()) look_at_probe(*path, tick);
      paths_.retired().destroy_expired(*context_.workers, tick.now, is_calm(end_.phase()));
      break;
  }
  return Urgency::kBusy;
}

// The peer is to learn the reason, for as long as it may wait for it.
Urgency Channel::step_after_error(const Tick& tick) {
  if (!closing_.told()) tell_failure();
  if (!active() && end_.epoch() == 0) give_set_up_up(tick);  // it has never been used
  if (!greeted_) end_outage();
  if (outage_.lasts()) step_outage(tick);
  if (outage_.lasts() && tick.now - outage_.began() > nanoseconds(context_.config.control_bound)) {
    end_outage();
    link_.close();
  }
  return outage_.lasts() ? Urgency::kBusy : Urgency::kIdle;
}

Urgency Channel::urgency(const Tick& tick, bool settles) const {
  UrgencySight seen{sight(tick)};
  seen.settles = settles;
  seen.probing = paths_.any([](const auto& path) { return path->probe_state() == ProbeState::kWaiting; });
  seen.asked = activity_.asks() || awaited();
  seen.keeps = !paths_.retired().retired().empty();
  seen.looks_soon = failback_.path() != 0 || looks_soon(tick);
  seen.migrates_for_ns = tick.now - migration_started_;
  return r2ccl::urgency(seen);
}

}  // namespace r2ccl
