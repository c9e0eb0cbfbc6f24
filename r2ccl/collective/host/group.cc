// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/group.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/host/reduce.h"
#include "r2ccl/collective/rails.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::collective {
namespace {

constexpr uint32_t kMemberVersion = 7;
constexpr uint32_t kMostRingSegments = 64;
constexpr uint64_t kChunkBytes = 256 << 10;  // of AllGather and ReduceScatter

}  // namespace

size_t nics_used(std::span<const RankInfo> members) {
  size_t further = kMostFurtherNics;
  for (const RankInfo& member : members) further = std::min<size_t>(further, member.further);
  return 1 + further;
}

Group::Group(Net& net, std::shared_ptr<OpenListener> listener, Setting setting)
    : net_(net),
      listener_(std::move(listener)),
      setting_(std::move(setting)),
      plan_(net.plan()),
      transport_(std::make_unique<ChannelTransport>(net_, setting_.device, listener_->listener,
                                                    setting_.handles, setting_.rank, setting_.connect_bound),
                 setting_.rank),
      executor_(transport_, setting_.limits) {}

Group::~Group() = default;

Result<std::unique_ptr<Group>> Group::connect(Net& net, std::shared_ptr<OpenListener> listener,
                                              Setting setting) {
  std::unique_ptr<Group> group(new Group(net, std::move(listener), std::move(setting)));
  if (auto met = group->meet(); !met) return met.error();
  return group;
}

Result<void> Group::wait_for(const std::function<bool()>& over, const char* what) {
  const auto until = std::chrono::steady_clock::now() + setting_.connect_bound;
  while (!over()) {
    auto connected = transport_.progress();
    if (!connected) return connected.error();
    auto moved = executor_.poll();
    if (!moved) return moved.error();
    if (*connected || *moved) continue;
    if (std::chrono::steady_clock::now() > until)
      return Error{ErrorCode::kPeerGone, std::string(what) + " did not complete within " +
                                             std::to_string(setting_.connect_bound.count()) +
                                             " ms (R2CC_CONNECT_MS)"};
    const timespec pause{0, 50'000};
    nanosleep(&pause, nullptr);
  }
  return {};
}

// A ring is what all plans of healthy nodes need, and enough for everybody to tell everybody who they are.
Result<void> Group::meet() {
  const uint32_t p = ranks(), rank = setting_.rank;
  members_.resize(p);
  members_[rank] = setting_.member;
  members_[rank].version = kMemberVersion;
  members_[rank].rank = rank;
  auto& algorithm = members_[rank].algorithm;
  setting_.algorithm.copy(algorithm.data(), algorithm.size());
  members_[rank].further = static_cast<uint32_t>(std::min(setting_.further.size(), kMostFurtherNics));
  members_[rank].addresses[0] = net_.properties(setting_.device).address;
  for (uint32_t i = 0; i < members_[rank].further; ++i) {
    members_[rank].further_handles[i] = setting_.further[i].handle;
    members_[rank].addresses[1 + i] = net_.properties(setting_.further[i].device).address;
  }
  if (p > 1) {
    const auto end_of = [this](uint32_t peer, bool sends, uint32_t ordinal) {
      return transport_.end(peer, sends, ordinal);
    };
    auto gather = std::make_shared<Program>(ring_allgather(natural_order(p), 1, 1), rank, end_of,
                                            std::vector<RailShares>{}, kMostSlots);
    if (auto met =
            wait_for([this] { return transport_.connected(); }, "connecting to the group's neighbours");
        !met)
      return met;
    auto registration = net_.reg(transport_.any_channel(), members_.data(), p * sizeof(RankInfo));
    if (!registration) return registration.error();
    Work work;
    work.program = gather;
    work.ranges = gather->ranges(p);
    work.element_bytes = sizeof(RankInfo);
    work.own = work.result = work.others = {reinterpret_cast<uintptr_t>(members_.data()), *registration};
    Executor::Run* const run = executor_.begin(std::move(work));
    auto met = wait_for([&] { return executor_.finished(run); }, "the group's first exchange");
    if (met) executor_.release(run);
    static_cast<void>(net_.dereg(transport_.any_channel(), *registration));
    if (!met) return met;
  }
  for (uint32_t i = 0; i < p; ++i)
    if (members_[i].version != kMemberVersion || members_[i].rank != i)
      return Error{ErrorCode::kVersionMismatch,
                   "rank " + std::to_string(i) + " of the CollNet group runs another version of R2CCL"};
  for (uint32_t i = 0; i < p; ++i)
    if (members_[i].algorithm != members_[rank].algorithm)
      return Error{ErrorCode::kInvalidArgument, "R2CC_ALGORITHM differs between the nodes of ranks " +
                                                    std::to_string(rank) + " and " + std::to_string(i) +
                                                    ": their schedules would not fit together"};
  if (auto wider = widen(); !wider) return wider;
  speeds_ = {members_[0].bytes_per_second, members_[0].reduce_bytes_per_second, members_[0].margin};
  for (const RankInfo& member : members_) {
    speeds_.bytes_per_second = std::min(speeds_.bytes_per_second, member.bytes_per_second);
    speeds_.margin = std::max(speeds_.margin, member.margin);
    speeds_.reduce_bytes_per_second =
        std::min(speeds_.reduce_bytes_per_second, member.reduce_bytes_per_second);
  }
  speeds_.rails = static_cast<uint32_t>(transport_.stripes());
  speeds_.bytes_per_second *= static_cast<double>(transport_.stripes());
  executor_.set_window(window_for(speeds_, transport_.stripes()));
  for (size_t nic = 0; plan_ && nic < transport_.stripes(); ++nic) tell_plan(nic, 1);
  auto agreement = setting_.make_agreement(rank, members_);
  if (!agreement) return agreement.error();
  agreement_ = std::move(*agreement);
  agreement_->watch_capacity([this] { return capacity(); });
  watch_links();
  return {};
}

/// Which NIC is slow shows when links between three nodes and more can be compared, and the rails of each.
void Group::watch_links() {
  if (ranks() < 3 || transport_.stripes() < 2 || !agreement_) return;
  LinksWanted wanted;
  wanted.devices.push_back(setting_.device);
  for (size_t i = 1; i < transport_.stripes(); ++i) wanted.devices.push_back(setting_.further[i - 1].device);
  for (const RankInfo& member : members_)
    wanted.peers.insert(wanted.peers.end(), member.addresses.begin(),
                        member.addresses.begin() + static_cast<std::ptrdiff_t>(transport_.stripes()));
  wanted.changed = [agreement = agreement_.get()](std::span<const double> rates) {
    LinkCodes links;
    for (const double rate : rates) links.push_back(code_of(rate));
    agreement->set_links(links);
  };
  wanted.tried = [agreement = agreement_.get()] { return agreement->take_tried(); };
  link_watch_ = net_.watch_links(std::move(wanted));
}

/// Takes as many NICs as every rank has into use, and connects the ring on them.
Result<void> Group::widen() {
  const size_t further = nics_used(members_) - 1;
  std::vector<std::unique_ptr<ChannelTransport>> stripes;
  for (size_t i = 0; i < further && ranks() > 1; ++i) {
    std::vector<Handle> handles;
    for (const RankInfo& member : members_) handles.push_back(member.further_handles[i]);
    stripes.push_back(std::make_unique<ChannelTransport>(
        net_, setting_.further[i].device, setting_.further[i].listener->listener, std::move(handles),
        setting_.rank, setting_.connect_bound));
  }
  transport_.widen(std::move(stripes), plan_.get());
  // By the number that all ranks have: nodes may offer different numbers of NICs.
  if (transport_.stripes() > 1)
    executor_.set_message(std::min(setting_.limits.message_bytes, kStripedMessageBytes));
  return wait_for([this] { return transport_.connected(); },
                  "connecting to the group's neighbours on all NICs");
}

/// The window begins alike on all ranks, so it becomes no larger at the other end of a rail.
void Group::tell_plan(size_t nic, double known) {
  plan_->knows(nic == 0 ? setting_.device : setting_.further[nic - 1].device, known, 2 * executor_.largest_window());
}

/// Balance need not mend what the plan takes into account.
void Group::tell_plan(const View& view) {
  if (view.epoch == told_epoch_) return;
  told_epoch_ = view.epoch;
  const size_t nics = transport_.stripes();
  if (!plan_ || nics < 2 || view.nics.size() != ranks() * nics) return;
  for (size_t nic = 0; nic < nics; ++nic) {
    double least = 1;
    for (size_t i = nic; i < view.nics.size(); i += nics)
      if (i < view.measured.size() && view.measured[i] != 0) least = std::min(least, view.nics[i]);
    tell_plan(nic, least);
  }
}

NodeCapacity Group::capacity() const {
  NodeCapacity now(net_.node_capacity());
  now.nics[0] = net_.nic_capacity(setting_.device);
  for (size_t i = 1; i < transport_.stripes(); ++i)
    now.nics[i] = net_.nic_capacity(setting_.further[i - 1].device);
  now.engine_pace = judge_.relative(now_ns());
  return now;
}

Result<Registration*> Group::reg(void* data, size_t bytes) {
  if (!transport_.any_channel()) return static_cast<Registration*>(nullptr);
  return net_.reg(transport_.any_channel(), data, bytes);
}

Result<void> Group::dereg(Registration* registration) {
  if (!registration) return {};
  return net_.dereg(transport_.any_channel(), registration);
}

Result<void> Group::poll() {
  if (error_) return *error_;
  auto connected = transport_.progress();
  if (!connected) error_ = connected.error();
  if (!error_) {
    const uint64_t from = judge_.counts() ? now_ns() : 0;
    auto moved = executor_.poll();
    if (!moved) error_ = moved.error();
    if (moved && judge_.counts()) judge_.polled(from, now_ns(), *moved);
  }
  if (error_) return *error_;
  return {};
}

std::shared_ptr<Program> Group::program(const View& view, Collective collective, uint64_t bytes) {
  // Plans of older epochs are of no use to operations that begin now; those that run hold theirs.
  while (!programs_.empty() && std::get<0>(programs_.begin()->first) < view.epoch)
    programs_.erase(programs_.begin());
  const uint64_t planned = planned_bytes(bytes);
  auto& known = programs_[{view.epoch, collective, planned}];
  if (!known) known = make_program(view, collective, planned);
  return known;
}

std::shared_ptr<Program> Group::make_program(const View& view, Collective collective, uint64_t bytes) {
  const uint32_t p = ranks();
  const auto end_of = [this](uint32_t peer, bool sends, uint32_t ordinal) {
    return transport_.end(peer, sends, ordinal);
  };
  const auto segments = static_cast<uint32_t>(
      std::clamp<uint64_t>(bytes / (uint64_t{2} * p * kChunkBytes), 1, kMostRingSegments));
  Schedule schedule;
  if (collective == Collective::kAllGather)
    schedule = ring_allgather(natural_order(p), segments);
  else if (collective == Collective::kReduceScatter)
    schedule = ring_reduce_scatter(natural_order(p), segments);
  else
    schedule = allreduce_schedule(view, bytes);
  auto rails = rail_shares(schedule, view.nics, transport_.stripes());
  size_t lanes = 0;
  for (const auto& of_rank : schedule.lanes) lanes = std::max(lanes, of_rank.size());
  const uint32_t slots = slots_for(lanes, transport_.stripes());
  return std::make_shared<Program>(std::move(schedule), setting_.rank, end_of, std::move(rails), slots);
}

Schedule Group::allreduce_schedule(const View& view, uint64_t bytes) {
  const uint32_t p = ranks();
  if (bytes < kSmallOperation && setting_.algorithm.empty()) return ring_allreduce(natural_order(p), 1, 1);
  std::vector<double> capacities = view.capacities;
  capacities.resize(p, 1.0);
  const Job job = job_of(capacities, bytes, outstanding_for(bytes), speeds_, view.nics);
  auto planned = plan(job);
  if (!planned) return ring_allreduce(natural_order(p), 1, 1);
  const Candidate* const forced = candidate_of(*planned, setting_.algorithm);
  const Candidate* const choice = forced ? forced : &planned->choice();
  if (!forced && !setting_.algorithm.empty())
    R2_WARN("NET/R2CCL: R2CC_ALGORITHM=%s: no such schedule among %u nodes, the planner chooses",
            setting_.algorithm.c_str(), p);
  R2_INFO("NET/R2CCL: AllReduce of %llu KiB among %u nodes, plan %llu: %s of %u segments%s%s",
          static_cast<unsigned long long>(bytes >> 10), p, static_cast<unsigned long long>(view.epoch),
          name(choice->algorithm), choice->segments,
          forced ? " (R2CC_ALGORITHM). " : ". ", planned->why.c_str());
  trace::Writer::instance().emit(trace::EventType::kAlgorithmChosen, 0xffff, agreement_->group_number(), view.epoch, bytes,
                                 uint64_t(traced_as(choice->algorithm)), setting_.rank);
  return build(job, *choice);
}

/// The least that fits of what other operations have left.
Result<std::pair<size_t, StagingMemory>> Group::scratch(size_t bytes) {
  auto best = scratch_.end();
  for (auto it = scratch_.begin(); it != scratch_.end(); ++it)
    if (it->first >= bytes && (best == scratch_.end() || it->first < best->first)) best = it;
  if (best != scratch_.end()) {
    const auto found = *best;
    scratch_.erase(best);
    return found;
  }
  const size_t rounded = std::bit_ceil(std::max<size_t>(bytes, 4096));
  auto memory = transport_.staging(rounded);
  if (!memory) return memory.error();
  return std::pair{rounded, *memory};
}

/// Is the plan of the operation that is about to begin agreed on?
Result<bool> Group::has_view() {
  if (next_view_) return true;
  agreement_->set_capacity(capacity());
  auto view = agreement_->view_for(operations_);
  if (!view) error_ = view.error();
  if (!view) return *error_;
  next_view_ = *view;
  if (next_view_) tell_plan(*next_view_);
  return next_view_ != nullptr;
}

/// The operation's memory; `block`: bytes that this rank sends to an AllGather or an AllReduce, or receives
/// of a ReduceScatter.
Result<Work> Group::memory_of(Collective collective, Work::Memory sent, Work::Memory received, size_t block,
                              Operation& operation) {
  const uint32_t p = ranks();
  const size_t before = setting_.rank * block;  // of the blocks of all ranks
  Work work;
  const auto copy_to = [&](std::byte* to) {
    work.copy_from = sent.at(0);
    work.copy_to = to;
    work.copy_bytes = block;
  };
  if (collective == Collective::kAllGather) {
    work.own = {sent.base - before, sent.registration};
    work.result = work.others = received;
    if (sent.at(0) != received.at(before)) copy_to(received.at(before));
    return work;
  }
  work.own = sent;
  if (collective == Collective::kReduceScatter) {
    work.result = {received.base - before, received.registration};
    work.result_from = before;
    work.result_to = before + block;
    if (p > 1 && block > 0) {
      auto scratch = this->scratch(block * p);
      if (!scratch) return scratch.error();
      operation.scratch = *scratch;
      const StagingMemory& memory = operation.scratch.second;
      work.others = {reinterpret_cast<uintptr_t>(memory.data), memory.registration};
    }
  } else {
    work.result = work.others = received;
  }
  if (p == 1 && sent.base != received.base) copy_to(received.at(0));
  return work;
}

Result<Operation*> Group::begin(Collective collective, const void* sent, void* received, size_t count,
                                DataType type, Reduction reduction, Registration* sent_registration,
                                Registration* received_registration) {
  if (auto polled = poll(); !polled) return polled.error();
  Operation* const not_now = nullptr;
  if (open_.size() >= static_cast<size_t>(kMaxOperations)) return not_now;
  auto planned = has_view();
  if (!planned) return planned.error();
  if (!*planned) return not_now;
  const size_t element = bytes_of(type), block = count * element;
  const size_t elements = collective == Collective::kAllReduce ? count : count * ranks();
  auto operation = std::make_unique<Operation>();
  operation->group = this;
  operation->bytes = collective == Collective::kAllGather ? block * ranks() : block;

  auto work = memory_of(collective, {reinterpret_cast<uintptr_t>(sent), sent_registration},
                        {reinterpret_cast<uintptr_t>(received), received_registration}, block, *operation);
  if (!work) return work.error();
  work->element_bytes = element;
  work->reduce = collective == Collective::kAllGather ? nullptr : reduction_of(type, reduction);
  auto program = this->program(*next_view_, collective, elements * element);
  work->ranges = program->ranges(elements);
  work->program = std::move(program);
  judge_.begins(open_.size(), next_view_, collective == Collective::kAllReduce && setting_.algorithm.empty(),
                now_ns(), added_ns());
  operation->run = executor_.begin(std::move(*work));
  ++operations_;
  next_view_ = nullptr;
  open_.push_back(std::move(operation));
  Operation* const begun = open_.back().get();
  if (auto polled = poll(); !polled) return polled.error();
  return begun;
}

/// What the group's NICs have been seen to carry at most, relative to their nominal rate; 0: not known.
double Group::seen_rate() const {
  double sum = 0;
  size_t known = 0;
  for (size_t i = 0; i < transport_.stripes(); ++i) {
    const double carried = net_.nic_carried(i == 0 ? setting_.device : setting_.further[i - 1].device);
    sum += carried;
    known += carried > 0;
  }
  return known == 0 ? 0 : sum / double(known);
}

void Group::warn(const EnginePace::Yield& yield) {
  R2_WARN(
      "NET/R2CCL: mode 3: AllReduces over the host engine take %.2f times as long as over NCCL's ring under "
      "Balance: for %.0f %% of the time there is something to do, and the thread that runs the engine "
      "(NCCL's "
      "proxy thread) is not there, and for %.0f %% it adds. If CollNet is not forced, they go back to NCCL's "
      "ring "
      "for %.0f s. Leave a CPU to that thread to avoid this",
      yield.to_ring, yield.late * 100, yield.added * 100, double(yield.for_ns) * 1e-9);
}

Result<TestOutcome> Group::test(Operation* operation) {
  if (!executor_.finished(operation->run)) {
    if (auto polled = poll(); !polled) return polled.error();
    if (!executor_.finished(operation->run)) return TestOutcome{};
  }
  const TestOutcome outcome{true, operation->bytes};
  executor_.release(operation->run);
  if (operation->scratch.first > 0) scratch_.push_back(operation->scratch);
  std::erase_if(open_, [operation](const auto& held) { return held.get() == operation; });
  const auto yield = judge_.ended(outcome.bytes, open_.size(), now_ns(), added_ns(), speeds_,
                                  [this] { return seen_rate(); });
  if (yield) warn(*yield);
  return outcome;
}

}  // namespace r2ccl::collective
