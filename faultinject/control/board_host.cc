// SPDX-License-Identifier: Apache-2.0
#include "faultinject/control/board_host.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>

#include "faultinject/control/board.h"
#include "faultinject/plan/names.h"

namespace faultinject {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

std::string describe(Effect effect, uint64_t value) {
  switch (effect) {
    case Effect::kWcShown:
      return "WC " + std::to_string(value) + " shown";
    case Effect::kWcRewritten:
      return "WC rewritten to " + std::to_string(value);
    case Effect::kWrWithheld:
      return "WR of " + std::to_string(value) + " bytes withheld";
    case Effect::kWrSeen:
      return "WR of " + std::to_string(value) + " bytes seen";
    case Effect::kNextSeen:
      return "the program's next completion there: " + status_name(int(value));
    case Effect::kWcDropped:
      return "WC " + status_name(int(value)) + " dropped";
    case Effect::kWrSpoiled:
      return "WR made to fail with " + status_name(int(value));
    case Effect::kReordered:
      return std::to_string(value) + " sends reordered";
    case Effect::kPostRefused:
    case Effect::kPollRefused:
    case Effect::kRegistrationRefused:
    case Effect::kModifyRefused:
    case Effect::kCreateRefused:
    case Effect::kCommandRefused:
      return to_string(effect) + (" with " + errno_name(int(value)));
    case Effect::kEventDelivered:
      return event_name(int(value)) + " delivered";
    case Effect::kLinkDown:
    case Effect::kLinkUp:
      return to_string(effect) + (", outage " + std::to_string(value));
    case Effect::kChannelEnded:
      return "completion channel with descriptor " + std::to_string(value) + " ended";
    case Effect::kGidHidden:
      return value == UINT64_MAX ? "all GIDs removed" : "GID " + std::to_string(value) + " removed";
    default:
      return to_string(effect);
  }
}

}  // namespace

struct BoardHost::Impl {
  int fd = -1;
  Board* board = nullptr;
  std::string path;
  std::vector<NodeShape> nodes;
  mutable std::mutex mutex;     // of specs and of arm(); never held by an injected process
  std::deque<FaultSpec> specs;  // a deque: spec() hands out references

  ~Impl() {
    if (board != nullptr) munmap(board, sizeof(Board));
    if (fd >= 0) close(fd);
  }
  FaultEntry& entry(uint32_t id) const {
    if (id == 0 || id > board->fault_count.load())
      throw std::out_of_range("no fault has the id " + std::to_string(id));
    return board->faults[id - 1];
  }
  // The fault that `spec` comes after: the latest of that name, or by id.
  uint32_t find(const FaultSpec& spec) const {
    const std::string& wanted = spec.trigger.fault;
    for (size_t i = specs.size(); i > 0; i--)
      if (specs[i - 1].name == wanted) return uint32_t(i);
    if (!wanted.empty() && wanted.size() < 8 && wanted.find_first_not_of("0123456789") == std::string::npos) {
      const auto id = uint32_t(std::stoul(wanted));
      if (id >= 1 && id <= specs.size()) return id;
    }
    std::vector<std::string> names;
    for (const FaultSpec& each : specs) names.push_back(each.name);
    const auto near = nearest(wanted, names);
    throw PlanError(spec.file, spec.line, spec.column,
                    "no fault called '" + wanted + "' and no fault with that id was armed before this one" +
                        (near ? "; did you mean '" + *near + "'?" : ""));
  }
  void let_time_act() const {
    bool changed = false;
    advance(*board, monotonic_ns(), changed);
    if (changed) ring_all(*board);
  }
};

BoardHost::BoardHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BoardHost::BoardHost(BoardHost&&) noexcept = default;
BoardHost& BoardHost::operator=(BoardHost&&) noexcept = default;

BoardHost::~BoardHost() {
  if (impl_) heal_all();
}

BoardHost BoardHost::create(const std::vector<NodeShape>& nodes, uint64_t seed) {
  if (nodes.empty() || nodes.size() > kMaxNodes)
    throw std::invalid_argument("a fault board has 1 to " + std::to_string(kMaxNodes) + " nodes");
  for (const NodeShape& node : nodes) {
    if (node.name.empty() || node.name.size() >= kNameBytes)
      throw std::invalid_argument("the node name '" + node.name + "' must have 1 to " +
                                  std::to_string(kNameBytes - 1) + " characters");
    if (node.nics > kMaxNics)
      throw std::invalid_argument("node '" + node.name + "' has more than " + std::to_string(kMaxNics) +
                                  " NICs");
  }
  auto impl = std::make_unique<Impl>();
  impl->fd = memfd_create("faultinject", MFD_CLOEXEC);
  if (impl->fd < 0) fail("memfd_create for the fault board");
  if (ftruncate(impl->fd, sizeof(Board)) != 0) fail("ftruncate of the fault board");
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, impl->fd, 0);
  if (memory == MAP_FAILED) fail("mmap of the fault board");
  impl->board = static_cast<Board*>(memory);  // zeroed pages are a valid empty Board
  impl->nodes = nodes;
  impl->path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(impl->fd);

  Board& board = *impl->board;
  board.version = kBoardVersion;
  board.bytes = sizeof(Board);
  board.seed = seed;
  board.node_count = uint32_t(nodes.size());
  for (size_t i = 0; i < nodes.size(); i++) {
    memcpy(board.nodes[i].name, nodes[i].name.c_str(), nodes[i].name.size());
    board.nodes[i].nics = nodes[i].nics;
  }
  board.owner_pid = getpid();
  board.start_ns.store(monotonic_ns());
  std::atomic_thread_fence(std::memory_order_release);
  board.magic = kBoardMagic;
  return BoardHost(std::move(impl));
}

const std::string& BoardHost::path() const { return impl_->path; }

void BoardHost::restart_clock() {
  impl_->board->start_ns.store(monotonic_ns());
  ring_all(*impl_->board);
}

namespace {

void fill_nodes(uint64_t* mask, const std::string& pattern, const std::vector<NodeShape>& nodes) {
  for (size_t node = 0; node < nodes.size(); node++)
    if (pattern_matches(pattern, nodes[node].name)) mask[node / 64] |= uint64_t(1) << (node % 64);
}

uint64_t nics_of(const std::string& pattern) {
  uint64_t mask = 0;
  for (uint32_t nic = 0; nic < kMaxNics; nic++)
    if (pattern_matches(pattern, "nic" + std::to_string(nic))) mask |= uint64_t(1) << nic;
  return mask;
}

/// Node and NIC patterns are independent of each other, so the target is the product of two masks.
void fill_target(FaultEntry& fault, const FaultSpec& spec, const std::vector<NodeShape>& nodes) {
  fill_nodes(&fault.node_mask[0], spec.target.node, nodes);
  fault.nic_mask |= nics_of(spec.target.nic);
  fault.port = spec.target.port;
  if (!spec.target.peer_node.empty()) {
    fault.has_peer = 1;
    fill_nodes(&fault.peer_node_mask[0], spec.target.peer_node, nodes);
    fault.peer_nic_mask |= nics_of(spec.target.peer_nic);
  }
  fault.opcodes = spec.opcodes;
  fault.selector = SelectorKind(spec.target.qp.kind);
  fault.qp_index = spec.target.qp.index;
}

void fill_trigger(FaultEntry& fault, const FaultSpec& spec, TimeOrigin origin, uint64_t board_seed) {
  fault.rounds = spec.repeat;
  fault.every_ns = uint64_t(spec.every.count());
  fault.trigger = TriggerKind(spec.trigger.kind);
  fault.since_first_op = spec.trigger.since_first_op;
  fault.after_ns = uint64_t(spec.trigger.after.count());
  strncpy(fault.event, spec.trigger.event.c_str(), kNameBytes - 1);
  fault.has_value = spec.trigger.value.has_value();
  fault.value = spec.trigger.value.value_or(0);
  fault.value_is_least = spec.trigger.event == "iteration";
  fault.count = spec.trigger.count;
  // 2^64 itself does not fit: a probability of 1 is the largest number, and every draw lies below or at it.
  fault.probability =
      spec.trigger.probability >= 1 ? UINT64_MAX : uint64_t(spec.trigger.probability * 0x1p64);
  fault.after_state = AfterState(spec.trigger.until);
  fault.seed = mix(board_seed ^ mix(fault.id));
  const auto up_to = uint64_t(spec.trigger.phase_up_to.count());
  fault.phase_delay_ns = up_to == 0 ? 0 : mix(fault.seed) % (up_to + 1);
  if (origin == TimeOrigin::kArming && spec.trigger.kind == Trigger::Kind::kTime &&
      !spec.trigger.since_first_op) {
    // 'now', so much later: no restart of the board's clock moves it.
    fault.trigger = TriggerKind::kNow;
    fault.phase_delay_ns += fault.after_ns;
  }
}

void fill_parameters(FaultEntry& fault, const FaultSpec& spec) {
  fault.duration_ns = spec.duration ? uint64_t(spec.duration->count()) : 0;
  fault.events = spec.events;
  fault.query = spec.query;
  fault.rate_bits_per_s = spec.rate_bits_per_s;
  fault.delay_ns = uint64_t(spec.delay.count());
  fault.receive = spec.receive;
  fault.error = spec.error;
  fault.status = spec.status;
  fault.event_type = spec.event;
  fault.limit = spec.count;
  fault.own = spec.own;
  fault.rate_steps = uint32_t(std::min<size_t>(spec.rates.size(), kMaxRateSteps));
  for (uint32_t i = 0; i < fault.rate_steps; i++)
    fault.schedule[i] = {spec.rates[i].bits_per_s, uint64_t(spec.rates[i].lasts.count())};
  if (spec.kind->lasts != nullptr && fault.duration_ns == 0 && spec.count != FaultSpec::kAll)
    fault.duration_ns = uint64_t(spec.kind->lasts(spec).count());
}

}  // namespace

uint32_t BoardHost::arm(const FaultSpec& spec, TimeOrigin origin) {
  check_targets(spec, impl_->nodes);
  Board& board = *impl_->board;
  const std::lock_guard lock(impl_->mutex);
  const uint32_t after_fault = spec.trigger.kind == Trigger::Kind::kAfter ? impl_->find(spec) : 0;
  const uint32_t index = board.fault_count.load();
  if (index >= kMaxFaults)
    throw std::length_error("the fault board is full: " + std::to_string(kMaxFaults) + " faults were armed");
  FaultEntry& fault = board.faults[index];
  strncpy(fault.kind, spec.kind->name, kNameBytes - 1);
  fault.id = index + 1;
  fault.after_fault = after_fault;
  fill_target(fault, spec, impl_->nodes);
  fill_trigger(fault, spec, origin, board.seed);
  fill_parameters(fault, spec);
  if (after_fault != 0) board.followers.fetch_add(1);
  fault.armed_ns.store(monotonic_ns());
  fault.phase.store(Phase::kArmed);
  if (fault.trigger == TriggerKind::kEvent)
    board.event_bits.fetch_or(uint64_t(1) << (name_hash(fault.event) % 64));
  impl_->specs.push_back(spec);
  board.fault_count.store(index + 1);
  impl_->let_time_act();
  ring_all(board);
  return fault.id;
}

void BoardHost::fire(uint32_t id) {
  if (fire_now(impl_->entry(id), monotonic_ns())) ring_all(*impl_->board);
}

void BoardHost::heal(uint32_t id) {
  if (heal_now(impl_->entry(id), monotonic_ns())) ring_all(*impl_->board);
}

void BoardHost::heal_all() {
  bool any = false;
  const uint32_t count = impl_->board->fault_count.load();
  for (uint32_t id = 1; id <= count; id++) any |= heal_now(impl_->entry(id), monotonic_ns());
  if (any) ring_all(*impl_->board);
}

FaultState BoardHost::state(uint32_t id) const {
  const FaultEntry& fault = impl_->entry(id);
  impl_->let_time_act();
  FaultState state;
  const PhaseAndRound seen = fault.phase.both();
  switch (seen.phase) {
    case Phase::kEmpty:
    case Phase::kArmed:
      state.phase = FaultState::Phase::kArmed;
      break;
    case Phase::kFired:
      state.phase = FaultState::Phase::kFired;
      break;
    case Phase::kHealed:
      state.phase = FaultState::Phase::kHealed;
      break;
  }
  state.armed_ns = fault.armed_ns.load();
  state.triggered_ns = fault.triggered_ns.load();
  state.t0_ns = fault.t0_ns.load();
  // The round that lasts may not have been counted yet.
  state.rounds = std::max(fault.times_fired.load(), seen.phase == Phase::kFired ? seen.round + 1 : 0);
  for (uint32_t round = state.rounds - std::min(state.rounds, kRecentRounds); round < state.rounds; round++)
    state.recent_ns.push_back(fault.recent_ns[round % kRecentRounds].load());
  state.healed_ns = state.phase == FaultState::Phase::kHealed ? fault.healed_ns.load() : 0;
  state.witnesses = fault.witnesses.load();
  return state;
}

const FaultSpec& BoardHost::spec(uint32_t id) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->specs.at(id - 1);
}

uint32_t BoardHost::armed() const { return impl_->board->fault_count.load(); }

std::vector<Witness> BoardHost::witnesses() const {
  const Board& board = *impl_->board;
  std::vector<Witness> all;
  const uint64_t count = std::min<uint64_t>(board.witness_count.load(), kMaxWitnesses);
  for (uint64_t i = 0; i < count; i++) {
    const WitnessEntry& entry = board.log[i];
    if (entry.ready.load(std::memory_order_acquire) == 0) continue;
    Witness witness;
    witness.fault_id = entry.fault.id;
    witness.round = entry.fault.round;
    witness.time_ns = entry.time_ns;
    witness.pid = entry.pid;
    witness.rank = entry.rank;
    witness.node = board.nodes[entry.node].name;
    witness.nic = entry.nic;
    witness.qp_num = entry.qp_num;
    witness.effect = Effect(entry.effect);
    witness.value = entry.value;
    witness.what = describe(witness.effect, witness.value);
    all.push_back(std::move(witness));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Witness& a, const Witness& b) { return a.time_ns < b.time_ns; });
  return all;
}

std::vector<Witness> BoardHost::witnesses(uint32_t id) const {
  std::vector<Witness> some;
  for (Witness& witness : witnesses())
    if (witness.fault_id == id) some.push_back(std::move(witness));
  return some;
}

uint64_t BoardHost::witnesses_lost() const {
  const uint64_t count = impl_->board->witness_count.load();
  return (count > kMaxWitnesses ? count - kMaxWitnesses : 0) + impl_->board->claims_lost.load();
}

void BoardHost::report(uint32_t id, uint64_t time_ns, uint32_t node, uint32_t nic, Effect effect,
                       uint32_t round) {
  FaultEntry& fault = impl_->entry(id);
  if (node >= impl_->nodes.size()) throw std::out_of_range("there is no node " + std::to_string(node));
  if (effect != Effect::kPutBack) took_effect(fault, time_ns);
  add_witness(*impl_->board, {{id, round}, time_ns, getpid(), "", node, nic, 0, uint32_t(effect), 0});
  ring_all(*impl_->board);
}

void BoardHost::event(const std::string& name, uint64_t value) {
  if (offer_event(*impl_->board, name.c_str(), value, monotonic_ns())) ring_all(*impl_->board);
}

uint32_t BoardHost::processes() const {
  uint32_t alive = 0;
  for (const ProcessEntry& process : impl_->board->processes) {
    const int32_t pid = process.pid.load();
    alive += pid != 0 && !is_dead(pid);
  }
  return alive;
}

}  // namespace faultinject
