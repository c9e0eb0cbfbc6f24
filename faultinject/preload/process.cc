// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "faultinject/plan/kind.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

// Made once per process and never destroyed: the program may use verbs until its very end.
std::atomic<Process*> g_process{nullptr};
std::atomic<bool> g_tried{false};
alignas(std::mutex) unsigned char g_making_storage[sizeof(std::mutex)];
std::mutex& making() { return *std::launder(reinterpret_cast<std::mutex*>(g_making_storage)); }
const bool g_making_made = (new (g_making_storage) std::mutex, true);

void say(const char* what, const char* detail) {
  fprintf(stderr, "faultinject[%d]: %s%s; no faults in this process\n", int(getpid()), what, detail);
}

Board* map_board() {
  const char* path = environment().board;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    say("cannot open the fault board ", path);
    return nullptr;
  }
  struct stat status {};
  void* memory = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size == off_t(sizeof(Board)))
    memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) {
    say("this is no fault board of this version: ", path);
    return nullptr;
  }
  auto* board = static_cast<Board*>(memory);
  if (board->magic != kBoardMagic || board->version != kBoardVersion) {
    say("this is no fault board of this version: ", path);
    munmap(memory, sizeof(Board));
    return nullptr;
  }
  return board;
}

constexpr uint32_t kNotOfThisNode = UINT32_MAX - 1;

// The place of `name` in FAULTINJECT_NICS ("mlx5_2,mlx5_3"), where several nodes share a machine's devices.
uint32_t named_nic(const char* name) {
  uint32_t nic = 0;
  const size_t length = strlen(name);
  for (const char* at = environment().nics; *at != 0; nic++) {
    const size_t part = strcspn(at, ",");
    if (part == length && strncmp(at, name, part) == 0) return nic;
    at += part + (at[part] == ',' ? 1 : 0);
  }
  return kNotOfThisNode;
}

// Which device of the node this is, in the order of ibv_get_device_list unless FAULTINJECT_NICS says which
// are its.
uint32_t nic_of(ibv_context* device) {
  const auto get_list = FAULTINJECT_REAL(kGetDeviceList, ibv_get_device_list);
  const auto free_list = FAULTINJECT_REAL(kFreeDeviceList, ibv_free_device_list);
  const auto get_name = FAULTINJECT_REAL(kGetDeviceName, ibv_get_device_name);
  if (get_list == nullptr || free_list == nullptr || get_name == nullptr) return UINT32_MAX;
  if (environment().nics[0] != 0) return named_nic(get_name(device->device));
  int count = 0;
  ibv_device** list = get_list(&count);
  uint32_t nic = UINT32_MAX;
  for (int i = 0; list != nullptr && i < count && nic == UINT32_MAX; i++)
    if (list[i] == device->device || strcmp(get_name(list[i]), get_name(device->device)) == 0)
      nic = uint32_t(i);
  if (list != nullptr) free_list(list);
  return nic;
}

int query_port_of(ibv_context* device, uint8_t port, ibv_port_attr& attributes) {
  attributes = {};
  if (verbs_context* extended = verbs_get_ctx_op(device, query_port); extended != nullptr)
    return extended->query_port(device, port, &attributes, sizeof attributes);
  const auto compat = FAULTINJECT_REAL(kQueryPort, ibv_query_port);
  return compat != nullptr ? compat(device, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) : -1;
}

// Registers the port's addresses, by which other processes know whose peer they have.
uint32_t register_addresses(Board& board, ibv_context* device, NicAddress owner) {
  const auto query_device = FAULTINJECT_REAL(kQueryDevice, ibv_query_device);
  const auto query_gid = FAULTINJECT_REAL(kQueryGid, ibv_query_gid);
  ibv_device_attr attributes{};
  if (query_device == nullptr || query_device(device, &attributes) != 0) return 1;
  for (uint32_t port = 1; port <= attributes.phys_port_cnt; port++) {
    ibv_port_attr state{};
    if (query_port_of(device, uint8_t(port), state) != 0) continue;
    add_address(board, owner, port, state.lid, nullptr);
    int empty = 0;  // GID tables have hundreds of rows, each a file to read; the used ones come first
    for (int i = 0; query_gid != nullptr && i < state.gid_tbl_len && i < 128 && empty < 8; i++) {
      ibv_gid gid{};
      const bool used = query_gid(device, uint8_t(port), i, &gid) == 0 &&
                        (gid.global.subnet_prefix != 0 || gid.global.interface_id != 0);
      empty = used ? 0 : empty + 1;
      if (used) add_address(board, owner, port, 0, gid.raw);
    }
  }
  return attributes.phys_port_cnt;
}

}  // namespace

Process* Process::current() { return g_process.load(std::memory_order_acquire); }

Process* Process::current_or_new() {
  if (environment().board[0] == 0) return nullptr;
  if (Process* process = current(); process != nullptr || g_tried.load(std::memory_order_acquire))
    return process;
  const std::lock_guard lock(making());
  if (current() == nullptr && !g_tried.load()) {
    g_process.store(make(), std::memory_order_release);
    g_tried.store(true, std::memory_order_release);
  }
  return current();
}

Process* Process::make() {
  Board* board = map_board();
  if (board == nullptr) return nullptr;
  uint32_t node = UINT32_MAX;
  for (uint32_t i = 0; i < board->node_count && i < kMaxNodes; i++)
    if (strncmp(board->nodes[i].name, environment().node, kNameBytes) == 0) node = i;
  ProcessEntry* entry = node != UINT32_MAX ? enroll(*board, getpid()) : nullptr;
  if (entry == nullptr) {
    if (node == UINT32_MAX) {
      say("FAULTINJECT_NODE names no node of the fault board: ", environment().node);
    } else {
      say("the fault board is full", "");
    }
    munmap(board, sizeof(Board));
    return nullptr;
  }
  static std::atomic<bool> handlers{false};
  if (!handlers.exchange(true)) {
    // In a child nothing of this process's state holds: no thread, and locks in any state. But the tables of
    // extended objects are those of the whole process.
    const auto before = [] {
      extended_lock_qps();
      extended_lock_cqs();
    };
    const auto after = [] {
      extended_unlock_cqs();
      extended_unlock_qps();
    };
    pthread_atfork(before, after, [] {
      extended_unlock_cqs();
      extended_unlock_qps();
      abandon_all_slots();
      g_process.store(nullptr);
      g_tried.store(false);
      new (g_making_storage) std::mutex;
    });
    // Before the provider's own destructors run under our thread's feet.
    atexit([] {
      if (Process* process = current(); process != nullptr && process->pid_ == getpid())
        process->stop_thread();
    });
  }
  // Made before there is a thread: a child forked while the thread makes them would wait for them for ever.
  static_cast<void>(fault_kinds());
  // Kept for ever, reachable through g_process.
  auto process = std::unique_ptr<Process>(new Process(*board, *entry, node, getpid()));
  process->start_thread();
  return process.release();
}

Process::Process(Board& board, ProcessEntry& entry, uint32_t node, int32_t pid)
    : board_(board), entry_(entry), node_(node), pid_(pid) {
  entry_.nics.store(0);  // exec keeps the pid, and with it the entry
  entry_.node.store(node);
}

void Process::start_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are the program's
  running_ = pthread_create(
                 &thread_, nullptr,
                 [](void* self) -> void* {
                   static_cast<Process*>(self)->run();
                   return nullptr;
                 },
                 this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!running_) say("cannot start the injector's thread", "");
}

void Process::stop_thread() {
  if (!running_) return;
  running_ = false;
  stop_.store(true);
  ring(entry_);
  timespec bound{};
  clock_gettime(CLOCK_REALTIME, &bound);
  bound.tv_sec += 1;  // the provider may have the thread in a call that does not return
  pthread_timedjoin_np(thread_, nullptr, &bound);
}

void Process::run() {
  pthread_setname_np(pthread_self(), "faultinject");
  prctl(PR_SET_TIMERSLACK, 1UL);  // the default of 50 us is a large part of what is measured here
  while (!stop_.load()) {
    const uint32_t seen = entry_.doorbell.load();
    const uint64_t now = monotonic_ns();
    bool changed = false;
    uint64_t next = advance(board_, now, changed);
    if (changed) ring_all(board_);
    const uint64_t asked = board_.questions.load();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& context : contexts_) {
        context->sync(now);
        next = std::min(next, context->tick(now));
      }
    }
    // All rounds about which it was asked are begun in every context. Its own answer may be the last one.
    if (entry_.answered.exchange(asked) < asked) next = now;
    asleep_until_ns_.store(next);
    if (!stop_.load()) wait_for_ring(entry_, seen, next);
    asleep_until_ns_.store(UINT64_MAX);
  }
}

void Process::wake_by(uint64_t time_ns) {
  // While it is awake this rings too: then its next look at the doorbell differs and it comes round again.
  if (time_ns < asleep_until_ns_.load()) ring(entry_);
}

void Process::opened(ibv_context* device) {
  const uint32_t nic = nic_of(device);
  if (nic == kNotOfThisNode) return;
  if (nic >= kMaxNics) {
    say("an opened device is not in ibv_get_device_list, or beyond the 64th", "");
    return;
  }
  const uint32_t ports = register_addresses(board_, device, {node_, nic});
  Slot* slot = take_slot(device);
  if (slot == nullptr) {
    say("64 devices are open already", "");
    return;
  }
  const std::lock_guard lock(mutex_);
  open_[nic].fetch_add(1);
  entry_.nics.fetch_or(uint64_t(1) << nic);
  contexts_.push_back(std::make_unique<Context>(*this, *slot, device, node_, nic, ports));
  Context& context = *contexts_.back();
  patch(*slot, context);
  context.sync(monotonic_ns());
}

std::vector<Undestroyed> Process::closing(ibv_context* device) {
  const std::lock_guard lock(mutex_);
  for (auto it = contexts_.begin(); it != contexts_.end(); ++it) {
    if ((*it)->device() != device) continue;
    if (Slot* slot = find_slot(device)) unpatch(*slot);
    (*it)->events().close();
    (*it)->close_wakers();
    auto undestroyed = (*it)->take_undestroyed();
    const uint32_t nic = (*it)->nic();
    if (open_[nic].fetch_sub(1) == 1) entry_.nics.fetch_and(~(uint64_t(1) << nic));
    contexts_.erase(it);
    return undestroyed;
  }
  return {};
}

bool Process::acknowledge(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  for (const auto& context : contexts_)
    if (context->events().acknowledge(event)) return true;
  return false;
}

void Process::has_struck(FaultEntry& fault, uint32_t round) {
  note_strike(board_, fault, round);
  // Where the target is this one context, there is no need to wait for the thread: so the next send finds the
  // fault armed anew, and is counted for the next round.
  uint32_t contexts = 0;
  for (uint32_t nic = 0; nic < kMaxNics; nic++)
    if (fault.hits(node_, nic)) contexts += open_[nic].load();
  finish_when_all_have(board_, fault, round, contexts <= 1 ? &entry_ : nullptr, monotonic_ns());
}

const char* Process::rank() const { return environment().rank; }

void Process::sync_all() {
  const uint64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  for (const auto& context : contexts_) context->sync(now);
}

void Process::event(const char* name, uint64_t value) {
  if (!offer_event(board_, name, value, monotonic_ns())) return;
  ring_all(board_);
  sync_all();
}

void Process::event_without_device(const char* name, uint64_t value) {
  if (environment().board[0] == 0) return;
  static Board* board = map_board();  // for ever; shared with forked children
  if (board == nullptr || board->event_bits.load(std::memory_order_relaxed) == 0) return;
  if (offer_event(*board, name, value, monotonic_ns())) ring_all(*board);
}

}  // namespace faultinject
