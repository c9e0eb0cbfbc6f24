// SPDX-License-Identifier: Apache-2.0
// What the plugin shims see of the core: one process-wide Net with devices, listeners and channels. The calls
// have the meaning of NCCL's net interface (see r2ccl/plugin), without its versions. No call blocks, except
// reg() and close(), which are bounded. Every call may be made from any thread; one channel's isend, irecv
// and test come from one thread at a time, as NCCL does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "r2ccl/base/log.h"
#include "r2ccl/base/result.h"
#include "r2ccl/channel/test_outcome.h"
#include "r2ccl/path/buffer_memory.h"
#include "r2ccl/path/link_meters.h"
#include "r2ccl/protocol/limits.h"

namespace r2ccl {

class Listener;
class Channel;       ///< one direction between two ranks: NCCL's send comm or recv comm
class Registration;  ///< a buffer registered on every NIC that may carry it
class Request;       ///< one isend or irecv in flight

/// What NCCL wants to know of a NIC.
struct NicProperties {
  std::string name;      ///< as in libibverbs
  std::string pci_path;  ///< /sys path of the PCI device, empty when there is none
  uint64_t guid = 0;     ///< unique per NIC
  NicAddress address{};  ///< what peers reach it by, when the process began
  int port = 1;
  int speed_mbps = 0;  ///< active speed × width, Mbit/s
  float latency_us = 0;
  int max_channels = 0;     ///< NCCL's maxComms
  bool gpu_memory = false;  ///< reg() takes BufferMemory::Kind::kGpu
  bool dma_buf = false;     ///< … and kDmaBuf
};

inline constexpr size_t kHandleBytes = 128;  ///< NCCL_NET_HANDLE_MAXSIZE
inline constexpr size_t kMaxMessageBytes = size_t{1}
                                           << 30;  ///< maxP2pBytes: test and iflush sizes are still int

/// Which links somebody wants to know the rates of.
struct LinksWanted {
  std::vector<int> devices;       ///< of this node, at most 8
  std::vector<NicAddress> peers;  ///< for each peer the NIC that each of `devices` reaches it by, in their order
  /// Called with the rate of each link, in the order of `peers`: 1: not slow; less: relative to those to the same
  /// peer, when a link has become slow or carries another part; 0: not known. From the service thread, which must
  /// not be kept waiting; never once the watch has ended.
  std::function<void(std::span<const double>)> changed;
  /// Asked before links are looked at: indices in `peers` of those whose NIC, known to be slow by its links, has its full
  /// share again. What they carried before counts no more. May be empty.
  std::function<std::vector<size_t>()> tried;
};
/// Ends with the object.
class LinkWatch {
 public:
  virtual ~LinkWatch() = default;
};

/// The plans of one group for all NICs, as far as the core need know of them. Ends with the object, when the channels
/// that follow it are closed.
class GroupPlan {
 public:
  virtual ~GroupPlan() = default;
  /// What is sent on it is the caller's part of a plan, made after nic_capacity() of all: Balance moves it only off a
  /// NIC that has failed or that is slower than the plan knows, and expects a slow one to have more under way than
  /// others.
  virtual void is_followed_by(Channel* channel) = 0;
  /// The rail that begins at `device` carries so much of its nominal rate by what the group's plan knows, at either
  /// end and to any peer: so much is no reason to move what follows the plan. `under_way`: bytes of the group that
  /// may stand in the queues of such a rail, at both ends: a probe may be behind them and those of other groups, and
  /// is waited for as long as they take.
  virtual void knows(int device, double relative, size_t under_way) = 0;
};

class Net {
 public:
  /// The process's Net, made on the first call: reads the configuration, opens the devices, starts the
  /// service thread. Later calls return the same object. Error kNoDevice when there is no usable NIC.
  static Result<Net*> acquire(LogSink sink);
  /// One more, which ends with the object: for simulations, where several processes are one.
  static Result<std::unique_ptr<Net>> make();

  virtual ~Net() = default;
  virtual int devices() const = 0;
  virtual NicProperties properties(int device) const = 0;
  /// What this node's NICs can carry together now, relative to their nominal rates: 0 … 1. From port states,
  /// the rates that ports say (mode 2 and up) and rails that have failed, not from measured rates: a sender
  /// cannot tell its own slow NIC from its peer's (watch_links() is for those who can). Cheap.
  virtual double node_capacity() const { return 1; }
  /// The same of one NIC.
  virtual double nic_capacity(int /*device*/) const { return 1; }
  /// The most that this process has been seen to send on one NIC while it had something to send, relative to
  /// its nominal rate. 0: not known yet, or below mode 2. Cheap.
  virtual double nic_carried(int /*device*/) const { return 0; }
  /// What links carry, from completions alone. Costs what Balance's own measuring costs, per peer; only with R2CC_PLAN_LINKS=1 in mode 3.
  /// nullptr: this cannot be told.
  virtual std::unique_ptr<LinkWatch> watch_links(LinksWanted /*wanted*/) { return nullptr; }

  /// Starts to listen on `device` and fills `handle` (kHandleBytes bytes) for the peer.
  virtual Result<Listener*> listen(int device, void* handle) = 0;
  /// Advances the connection that `handle` names. nullptr: not ready, call again with the same memory
  /// (progress is kept in the handle's last bytes).
  virtual Result<Channel*> connect(int device, void* handle) = 0;
  /// nullptr: nobody is ready, call again.
  virtual Result<Channel*> accept(Listener* listener) = 0;
  /// A group that plans for several NICs. nullptr: nobody need know of it.
  virtual std::unique_ptr<GroupPlan> plan() { return nullptr; }
  virtual Result<void> close(Listener* listener) = 0;
  virtual Result<void> close(Channel* channel) = 0;

  /// Registers [data, data+bytes). Registrations of one range of the same memory are shared. Memory of a GPU
  /// (error kInvalidArgument unless it is offered) is never looked at through `data`.
  virtual Result<Registration*> reg(Channel* channel, void* data, size_t bytes,
                                    const BufferMemory& memory = {}) = 0;
  virtual Result<void> dereg(Channel* channel, Registration* registration) = 0;

  /// nullptr: cannot be taken now, call again.
  virtual Result<Request*> isend(Channel* channel, const void* data, size_t bytes, Registration* reg) = 0;
  virtual Result<Request*> irecv(Channel* channel, void* data, size_t bytes, Registration* reg) = 0;
  /// The request is gone once `done` is reported. What was received into a GPU's memory can then be seen by
  /// it. An error means that no path is left (see docs of Error).
  virtual Result<TestOutcome> test(Request* request) = 0;
};

}  // namespace r2ccl
