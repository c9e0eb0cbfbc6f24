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
      sender_(sender),
      number_(g_next_number.fetch_add(1)),
      link_(std::move(stream), token, sender),
      home_nic_(home_nic),
      bounds_{nanoseconds(context.config.fail_bound), nanoseconds(context.config.probe_deadline)},
      failback_({nanoseconds(context.config.failback_settle), Failback::kFirstWaitNs,
                 nanoseconds(context.config.failback_ceiling)}),
      end_(end),
      search_(nanoseconds(context.config.no_path_bound()), bounds_.proven()),
      outage_(nanoseconds(context.config.control_bound), nanoseconds(context.config.unreached_bound())),
      peer_end_(nanoseconds(context.config.fence_bound)),
      created_(now_ns()),
      watchdog_(nanoseconds(context.config.suspect_after), nanoseconds(context.config.stuck_after)),
      fence_(sender, nanoseconds(context.config.fence_bound), nanoseconds(context.config.removal_bound),
             nanoseconds(context.config.fence_delay)) {}

// Nearly always nothing is left to do: see Closing::step().
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
  if (open_requests_ & bit_of(message) || activity_.requests() >= uint32_t(kMaxRequests)) return nullptr;
  return &request;
}

bool Channel::drain(Path& path, Owned owned) {
  ownership_.check(owned);
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
      path.sentinel(completion);
    } else if (completion.status != IBV_WC_SUCCESS) {
      if (path.carries()) suspect(path, completion.status, owned);
    } else {
      switch (kind) {
        case Path::kWorkWholeData:
          path.carried(health::WholePackets::kBytes, owned);
          [[fallthrough]];
        case Path::kWorkData:
          ++path.completed;
          activity_.moved();
          on_data_sent(path, detail, owned);
          break;
        case Path::kWorkCts:
          path.completed = detail;
          break;
        case Path::kWorkPush:
          path.push_is_back(owned);
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
  ownership_.check(owned);
  const FailedWork means =
      failed_work(path.failure.has_value(), closing_.peer_closed(), context_.resilient());
  if (means == FailedWork::kNothing) return;
  path.last_status = status;
  if (means == FailedWork::kFail)
    return fail(Error{ErrorCode::kNicFailed, rail_name(path) + ": " + verbs::describe(status) +
                                                 " on channel " + std::to_string(number_) +
                                                 "; R2CC_MODE=0 has no other path"});
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(Bounds::kTearDownNs);
  while (!close_done_.wait_for(lock, std::chrono::milliseconds(50), [this] { return torn_down_; })) {
    if (context_.ended.load(std::memory_order_acquire))
      return;  // the process exits: nobody is there to do it
    if (std::chrono::steady_clock::now() < deadline) continue;
    R2_WARN("NET/R2CCL: channel %u could not be torn down within %llu ms", number_,
            static_cast<unsigned long long>(Bounds::kTearDownNs / kNsPerMs));
    return;
  }
}

}  // namespace r2ccl
