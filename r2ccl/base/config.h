// SPDX-License-Identifier: Apache-2.0
// Every setting of the core, read once from the environment and immutable afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/base/address_range.h"
#include "r2ccl/base/result.h"

namespace r2ccl {

/// R2CC_MODE, with upstream's numbers.
enum class Mode : uint8_t { kBaseline = 0, kMigrate = 1, kBalance = 2, kAllReduce = 3 };

/// NCCL_IB_PCI_RELAXED_ORDERING, with NCCL's numbers: whether NICs may write parts of a message in another
/// order than they arrived in.
enum class RelaxedOrdering : uint8_t { kOff = 0, kOn = 1, kWherePossible = 2 };

/// "baseline", "migrate", "balance" or "allreduce".
const char* name(Mode mode);

struct Config {
  using Milliseconds = std::chrono::milliseconds;

  Mode mode = Mode::kMigrate;    ///< R2CC_MODE
  bool strict_ack = true;  ///< R2CC_STRICT_ACK: a send is done when the receiver has it, or a copy is kept
  std::string socket_interface;  ///< R2CC_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME: control/interface.h
  std::string socket_family;     ///< NCCL_SOCKET_FAMILY
  std::string comm_id;           ///< NCCL_COMM_ID, which names a subnet
  int collnet_nics = 0;  ///< R2CC_COLLNET_NICS: NICs that a CollNet group spreads over; 0: its part of all
  int plan_links = 0;    ///< R2CC_PLAN_LINKS: plans count NICs as slow that their links show to be
  /// R2CC_COLLNET_MARGIN: percent of its predicted time that the engine is taken to need; 0: as is known of
  /// such predictions
  int collnet_margin = 0;
  std::string algorithm;     ///< R2CC_ALGORITHM: mode 3's schedule; empty: the planner's choice
  std::string metrics_file;  ///< R2CC_METRICS: where counters go as Prometheus text; empty: nowhere
  std::string
      topology_file;       ///< R2CC_TOPOLOGY: the machine as `lstopo --of xml` writes it; empty: look at it
  std::string node_scope;  ///< R2CC_NODE_SCOPE: processes of one host with different ones share no NICs
  std::string hca_filter;  ///< NCCL_IB_HCA: prefix list; '^' excludes, '=' means exact
  int ib_timeout = 20;     ///< NCCL_IB_TIMEOUT: 4.096 µs · 2^n; 0: for ever
  int ib_retry_count = 7;  ///< NCCL_IB_RETRY_CNT
  int gid_index = -1;      ///< NCCL_IB_GID_INDEX; -1: chosen by the next two (verbs/gid.h)
  int roce_version = 2;    ///< NCCL_IB_ROCE_VERSION_NUM
  AddressRange address_range;  ///< NCCL_IB_ADDR_FAMILY, NCCL_IB_ADDR_RANGE: where the GID should lie
  std::string address_range_text;
  int pci_order = 1;   ///< NCCL_IB_DEVICE_PCI_ORDER: NICs are numbered by PCI address; 0: as verbs lists them
  int pkey_index = 0;  ///< NCCL_IB_PKEY: index in the port's table of partition keys
  bool gpu_direct = false;  ///< R2CC_GPU_DIRECT: GPU memory is offered to NCCL
  int gpu_flush =
      1;  ///< R2CC_GPU_FLUSH: 1: a NIC is flushed when it has written into a GPU's memory; 0: none is
  static constexpr int kFlushHomeOnly = 2;  ///< … for showing what that costs: only the channel's own NIC
  RelaxedOrdering relaxed_ordering = RelaxedOrdering::kOff;  ///< of buffers, never of what the core polls
  int traffic_class = 0;                                     ///< NCCL_IB_TC; −1 there is 0 here
  int service_level = 0;                                     ///< NCCL_IB_SL; likewise
  int memory_node = -1;  ///< R2CC_MEMORY_NODE: NUMA node of all buffers; -1: the kernel is asked
  int cross_socket = 0;  ///< R2CC_CROSS_SOCKET: percent of its rate that a NIC carries from or to memory on
                         ///< another socket; 0: not known
  int standbys = 32;     ///< R2CC_STANDBYS: paths that a process keeps ready for its sends; a channel without
                         ///< one opens it when it must
  Milliseconds suspect_after{
      4};  ///< R2CC_SUSPECT_MS: silence after which a path is probed (the least value; it adapts upward)
  Milliseconds probe_deadline{
      8};  ///< R2CC_PROBE_MS: an unanswered probe of this age means the path is dead (the least value)
  Milliseconds stuck_after{
      1000};  ///< R2CC_STUCK_MS: probes answer, but the QP makes no progress: it alone is fenced
  Milliseconds fence_bound{500};  ///< R2CC_FENCE_MS: a NIC that cannot be stopped within this is unfenceable
  Milliseconds fence_delay{0};    ///< R2CC_FENCE_DELAY_MS: for tests of tools that watch recovery: no fence
                                  ///< counts as done sooner after it began
  Milliseconds removal_bound{
      90000};  ///< R2CC_REMOVAL_MS: a device that has failed at a receiver, and that its kernel has not
               ///< stopped within this, is an error (a driver may wait for its PCI function for a minute)
  Milliseconds register_bound{
      30000};  ///< R2CC_REGISTER_MS: a NIC that has not registered a buffer within this is left
  Milliseconds control_bound{
      5000};  ///< R2CC_CONTROL_MS: a peer whose process cannot be reached over TCP for this long is gone
  bool control_bound_given = false;   ///< … the user has said so
  Milliseconds fail_bound{2000};      ///< R2CC_FAIL_BOUND_MS: no path for this long is an error
  bool fail_bound_given = false;      ///< … the user has said so
  Milliseconds failback_settle{200};  ///< R2CC_FAILBACK_MS: a repaired rail must carry probes this long
  Milliseconds failback_ceiling{
      10000};  ///< R2CC_FAILBACK_MAX_MS: flapping rails wait twice as long each time, up to this
  Milliseconds connect_bound{
      30000};  ///< R2CC_CONNECT_MS: a peer that does not answer at set-up for this long is an error

  /// NCCL's variables that are not used as they stand: a sentence each, for the log.
  std::vector<std::string> warnings;

  /// Reads the environment through `get` (name -> value or nullptr). An unusable value of a variable of ours
  /// is an error that names the variable, its value and what is accepted. NCCL's are read as NCCL reads them,
  /// which refuses nothing: what cannot be used is passed over, with a warning.
  static Result<Config> from(const std::function<const char*(const char*)>& get);
  static Result<Config> from_environment();

  /// How long a channel may be without a path. Where the user has not said it: as long as a queue pair of
  /// NCCL's own transport would retry (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT), but from fail_bound to
  /// kMostFailBound. Up to there this bound ends no job that would go on without this plugin.
  Milliseconds no_path_bound() const;
  /// For how long the peer's process may not be reached over TCP. Where the user has not said it: no shorter
  /// than a channel may be without a path. A network that carries nothing takes both away at once, and the
  /// job goes on when it carries again.
  Milliseconds unreached_bound() const;
  static constexpr Milliseconds kMostFailBound{60000};

  /// How much of a NIC's capacity a byte takes whose memory is on another socket: ≥ 1.
  double far_cost() const { return 100.0 / (cross_socket > 0 ? cross_socket : kAssumedCrossSocket); }
  static constexpr int kAssumedCrossSocket = 50;

  /// Name, value and meaning of each setting, for `r2bench doctor`.
  struct Entry {
    std::string variable;
    std::string value;
    std::string meaning;
  };
  std::vector<Entry> entries() const;
};

}  // namespace r2ccl
