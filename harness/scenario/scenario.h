// SPDX-License-Identifier: Apache-2.0
// What one scenario file says, after defaults, overrides and checks: plain data. Whoever holds a Scenario may
// rely on every rule of harness/scenario/README.md; nothing here reads files or starts anything.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "faultinject/plan/plan.h"
#include "harness/scenario/expectation.h"
#include "harness/scenario/rank_fault.h"
#include "harness/scenario/topology.h"

namespace r2bench {

/// kNone: no RDMA device, for net plugins over sockets.
enum class FabricKind { kVhca, kRxe, kVerbs, kNone };

enum class LinkLayer { kEthernet, kInfiniBand };

/// What all ports of virtual NICs are like, besides rate and latency. Other NICs have their own.
struct VirtualPorts {
  LinkLayer link = LinkLayer::kEthernet;
  int per_nic = 1;  ///< 1 … 4
  int mtu = 4096;   ///< bytes: 256, 512, 1024, 2048 or 4096

  bool operator==(const VirtualPorts&) const = default;
};

/// The nodes and NICs of the job. All nodes are alike.
struct Fabric {
  FabricKind kind = FabricKind::kVhca;
  int nodes = 2;
  int ranks_per_node = 1;
  int nics_per_node = 4;
  uint64_t nic_rate_bits_per_s = 0;      ///< 0 = unlimited
  std::chrono::nanoseconds latency{0};   ///< one way, per port
  VirtualPorts ports;                    ///< kVhca
  std::optional<NodeTopology> topology;  ///< kVhca

  int ranks() const { return nodes * ranks_per_node; }
};

/// Host memory over any net plugin, unmodified NCCL on GPUs, or the user's own command.
enum class Engine { kCpu, kNccl, kExec };
/// What carries NCCL's messages: the net plugin, or NCCL's own IB transport, as shipped or with its failover.
/// …BesideIb: there are communicators over what the name says and as many over the IB transport, and
/// operations alternate between the two kinds.
enum class Transport { kPlugin, kIb, kIbFailover, kPluginBesideIb, kIbBesideIb };
constexpr bool has_plugin(Transport t) { return t == Transport::kPlugin || t == Transport::kPluginBesideIb; }
constexpr bool is_beside(Transport t) {
  return t == Transport::kPluginBesideIb || t == Transport::kIbBesideIb;
}
enum class Operation { kAllReduce, kSendRecv, kAllGather, kReduceScatter, kBroadcast, kAllToAll };
/// Does every rank own one equal chunk of the buffer?
inline bool in_chunks(Operation op) {
  return op == Operation::kAllGather || op == Operation::kReduceScatter || op == Operation::kAllToAll;
}
inline bool reduces(Operation op) { return op == Operation::kAllReduce || op == Operation::kReduceScatter; }
/// Which ranks do an operation together: all of the job, or those with the same local rank.
enum class Groups { kAll, kLocalRank };
/// Which AllReduces go through CollNet where the plugin has it (mode allreduce): those that its tuner picks,
/// all, or none.
enum class CollNet { kAuto, kForce, kOff };
enum class DataType {
  kInt8,
  kInt32,
  kInt64,
  kFloat32,
  kFloat64,
  kUint8,
  kUint32,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};
/// What AllReduce and ReduceScatter do with their inputs. avg and premulsum scale before, and are sums to the
/// network, as in NCCL.
enum class Reduction { kSum, kProd, kMin, kMax, kAvg, kPremulSum };

/// How a job of the engine nccl leaves its communicators behind: ncclCommAbort and new ones of new ids, or
/// ncclCommShrink without one rank, at once or after ncclCommRevoke.
enum class RenewBy { kAbort, kShrink, kRevoke };

/// New communicators in place of the job's, once. The operation is done again on them.
struct Renewal {
  RenewBy by = RenewBy::kAbort;
  int iter = 0;  ///< the counted operation in which, or before which, it happens
  /// How long after the operation's start; none: before it, when no operation is open.
  std::optional<std::chrono::nanoseconds> delay;
  int without = -1;  ///< the job's rank that is left out from then on; -1 (abort): none
};

/// Of the engine nccl alone.
struct NcclSettings {
  std::string library = "libnccl.so.2";  ///< name or path, as dlopen takes it
  Transport transport = Transport::kPlugin;
  bool graph = false;      ///< each operation is a replay of a CUDA graph that was captured once
  int communicators = 1;   ///< of all ranks of the operation; each carries an equal part of the bytes
  int group_calls = 1;     ///< calls of a communicator in one group; each carries an equal part of its bytes
  bool registers = false;  ///< the buffers are registered with each communicator (nccl-tests' -R 1)
  bool blocking = true;    ///< false: calls return at once, and the rank polls the communicator
  bool mps = false;        ///< the ranks share GPUs through CUDA's MPS, which the runner starts and ends
  std::optional<Renewal> renewal;

  int parts() const { return communicators * group_calls; }  ///< of the buffer
};

/// Of the engine exec alone. Each rank is one copy of the command.
struct ExecSettings {
  std::vector<std::string> arguments;  ///< as execvp takes them; of a text: a shell's
  bool nccl_tests = false;             ///< it prints a table of nccl-tests; each row is an operation
  /// Regular expressions (ECMAScript): the line with which the operations begin (empty: they begin with the
  /// command), and a line that ends one (empty: the command is one operation).
  std::string begin, iteration;
};

/// What the ranks do: `iters` verified operations of `bytes` each, after `warmup` that are not counted.
struct Workload {
  Engine engine = Engine::kCpu;
  Operation op = Operation::kAllReduce;
  DataType dtype = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  uint64_t bytes = 16u << 20;  ///< per rank and operation; a multiple of the data type's size
  int iters = 200;
  int warmup = 5;
  int channels = 0;  ///< 0 = one per NIC, with a topology one per NIC of the rank's socket
  Groups groups = Groups::kAll;
  CollNet collnet = CollNet::kAuto;
  bool in_place = false;         ///< the result goes where the input was
  bool verify = true;            ///< compare every element of every operation
  int copies = 0;                ///< communicators of each side where two take turns; 0: 8 (kNccl), 1 (kCpu)
  std::string plugin = "r2ccl";  ///< name as in NCCL_NET_PLUGIN (x -> libnccl-net-x.so) or a path
  int plugin_abi = 0;            ///< 8 … 12; 0 = the highest that the plugin has
  NcclSettings nccl;             ///< kNccl; its transport and mps also of kExec
  ExecSettings exec;             ///< kExec

  /// Of each side, where two take turns.
  int pairs() const { return copies ? copies : engine == Engine::kCpu ? 1 : 8; }
};

/// R2CC_MODE's numbers.
enum class ModeKind { kBaseline = 0, kMigrate = 1, kBalance = 2, kAllReduce = 3 };

/// The other side of a job that compares two modes.
struct OtherSide {
  ModeKind kind = ModeKind::kBaseline;
  std::map<std::string, std::string> env;  ///< on top of Scenario::env and Mode::env
  std::string plugin;                      ///< empty: the mode's
};

/// One way to run the job. Expectations name a mode by its label.
struct Mode {
  ModeKind kind = ModeKind::kBaseline;
  std::string label;                       ///< unique in the scenario; the kind's name unless given
  std::map<std::string, std::string> env;  ///< on top of Scenario::env
  std::optional<Transport> transport;      ///< instead of the workload's
  std::optional<OtherSide> beside;         ///< whose operations take turns with this mode's, in the same job
  std::string plugin;                      ///< instead of the workload's; empty: that one
};

/// Place of the mode that the overhead of the others is measured against: the first baseline, else the first
/// mode.
size_t reference_mode(const std::vector<const Mode*>& modes);

/// No job outlives these, whatever happens in it.
struct Timeouts {
  std::chrono::nanoseconds setup{std::chrono::seconds(60)};  ///< start of the ranks to the first iteration
  std::chrono::nanoseconds stall{std::chrono::seconds(15)};  ///< no progress on any rank for so long: killed
  std::chrono::nanoseconds job{std::chrono::seconds(300)};   ///< one mode, from start to end
  /// After the last iteration; and 20 ms more for each pair of ranks.
  std::chrono::nanoseconds close{std::chrono::seconds(10)};
};

/// Injected faults of a job, each counted once for each round: its fault board has room for so many.
inline constexpr size_t kMostFaults = 4096;

struct Scenario {
  int version = 1;
  std::string name;
  std::string description;
  uint64_t seed = 1;
  int repeats = 1;  ///< faults per job and mode: the fault list is armed again after each recovery
  int pairs = 0;    ///< > 0: each mode runs so many times, interleaved, and overhead is taken pair by pair
  Fabric fabric;
  Workload workload;
  std::vector<Mode> modes;
  std::map<std::string, std::string> env;  ///< for every rank in every mode
  std::vector<faultinject::FaultSpec> faults;
  bool arm_at_start = false;  ///< faults are armed before the ranks start, not when all of them are warm
  std::vector<RankFault> rank_faults;
  std::vector<Expectation> expectations;
  Timeouts timeouts;
  std::string source_file;                       ///< as the user named it
  std::string source_text;                       ///< the file as read, kept beside the result
  std::map<std::string, std::string> overrides;  ///< what the command line changed, for the result
  std::map<std::string, std::string> matrix;     ///< this scenario's cell of the matrix; empty without one

  const Mode* find_mode(const std::string& label) const;
  Transport transport_of(const Mode& mode) const { return mode.transport.value_or(workload.nccl.transport); }
  const std::string& plugin_of(const Mode& mode) const {
    return mode.plugin.empty() ? workload.plugin : mode.plugin;
  }
  /// Of the side whose operations take turns with the mode's.
  const std::string& plugin_of(const Mode& mode, const OtherSide& other) const {
    return other.plugin.empty() ? plugin_of(mode) : other.plugin;
  }
  /// Whether a job of the mode compares two sides, whose operations take turns (turns.h).
  bool compares_sides(const Mode& mode) const { return mode.beside || is_beside(transport_of(mode)); }
};

// Names as they stand in the YAML and in results.
const char* name(LinkLayer link);
const char* name(FabricKind kind);
const char* name(Engine engine);
const char* name(Transport transport);
const char* name(RenewBy by);
const char* name(Operation op);
const char* name(DataType type);
const char* name(Reduction reduction);
/// Largest sum of whole numbers that the type has exactly, whatever the order; 0: any that can occur.
constexpr int largest_exact_sum(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 2048;
    case DataType::kBfloat16:
      return 256;
    case DataType::kFloat8e4m3:
      return 16;
    case DataType::kFloat8e5m2:
      return 8;
    default:
      return 0;
  }
}
/// Over so many ranks results of one-byte whole numbers that must not wrap still differ from each other: each
/// rank's contribution is one of three numbers or more.
constexpr int most_ranks(DataType type, Reduction reduction) {
  const bool narrow = type == DataType::kInt8 || type == DataType::kUint8;
  const bool scaled = reduction == Reduction::kAvg || reduction == Reduction::kPremulSum;
  return narrow && scaled ? 127 / 3 : std::numeric_limits<int>::max();
}
const char* name(Groups groups);
const char* name(CollNet collnet);
const char* name(ModeKind kind);
/// Bytes of one element.
constexpr int size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 1;
}

}  // namespace r2bench
