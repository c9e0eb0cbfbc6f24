// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

namespace r2ccl {
namespace {

/// One numeric setting: where it comes from, what it accepts, where it goes.
struct Field {
  const char* variable;
  long least;
  long most;
  const char* meaning;
  std::function<long(const Config&)> read;
  std::function<void(Config&, long)> write;
};

Field milliseconds(const char* variable, std::chrono::milliseconds Config::*member, long least, long most,
                   const char* meaning) {
  return {variable,
          least,
          most,
          meaning,
          [member](const Config& c) { return long((c.*member).count()); },
          [member](Config& c, long v) { c.*member = std::chrono::milliseconds(v); }};
}

Field integer(const char* variable, int Config::*member, long least, long most, const char* meaning) {
  return {variable,
          least,
          most,
          meaning,
          [member](const Config& c) { return long(c.*member); },
          [member](Config& c, long v) { c.*member = int(v); }};
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"R2CC_MODE", 0, 3, "0 baseline (no resilience), 1 live migration, 2 balance, 3 AllReduce",
       [](const Config& c) { return long(c.mode); }, [](Config& c, long v) { c.mode = Mode(v); }},
      {"R2CC_STRICT_ACK", 0, 1,
       "1: a send is done only when the receiver has acknowledged it, or when a copy of it is kept until "
       "then",
       [](const Config& c) { return long(c.strict_ack); }, [](Config& c, long v) { c.strict_ack = v != 0; }},
      integer("NCCL_IB_TIMEOUT", &Config::ib_timeout, 0, 31, "QP timeout, 4.096 us * 2^n; 0: none"),
      integer("NCCL_IB_RETRY_CNT", &Config::ib_retry_count, 0, 7, "QP transport retries"),
      integer("NCCL_IB_GID_INDEX", &Config::gid_index, -1, 255,
              "GID table index; -1 chooses by version, family and range"),
      integer("NCCL_IB_ROCE_VERSION_NUM", &Config::roce_version, 1, 2, "RoCE version of the GID"),
      integer("NCCL_IB_PKEY", &Config::pkey_index, 0, 65535, "index in the table of partition keys"),
      integer("NCCL_IB_DEVICE_PCI_ORDER", &Config::pci_order, 0, 1,
              "1: NICs are numbered by PCI address; 0: in the order in which libibverbs lists them"),
      {"R2CC_GPU_DIRECT", 0, 1, "1: NICs read and write GPU memory (unverified on hardware)",
       [](const Config& c) { return long(c.gpu_direct); }, [](Config& c, long v) { c.gpu_direct = v != 0; }},
      integer(
          "R2CC_GPU_FLUSH", &Config::gpu_flush, 0, 2,
          "GPU memory: 1: a receive waits for a flush of each NIC that wrote; 0: it does not wait, for GPUs "
          "that see writes in order; 2: for tests, only one NIC is flushed, and data of the others is "
          "corrupted"),
      {"NCCL_IB_PCI_RELAXED_ORDERING", 0, 2,
       "whether NICs may write the parts of a message in any order: 0 no, 1 yes, 2 if the provider "
       "supports it",
       [](const Config& c) { return long(c.relaxed_ordering); },
       [](Config& c, long v) { c.relaxed_ordering = RelaxedOrdering(v); }},
      integer("NCCL_IB_TC", &Config::traffic_class, 0, 255, "traffic class"),
      integer("NCCL_IB_SL", &Config::service_level, 0, 15, "service level"),
      integer("R2CC_STANDBYS", &Config::standbys, 0, 100000,
              "standby paths that a process keeps open for its sends"),
      integer("R2CC_COLLNET_NICS", &Config::collnet_nics, 0, 8,
              "mode 3: number of NICs that a CollNet group (one per GPU) uses; 0: the node's NICs divided by "
              "its ranks, whose number the launcher sets"),
      integer("R2CC_COLLNET_MARGIN", &Config::collnet_margin, 0, 10000,
              "mode 3: the time that the host engine is assumed to need, in percent of the predicted time; "
              "CollNet is chosen if that is more than 3 % below the time of NCCL's ring; 0: 100 for large "
              "operations on slow NICs if one node is degraded, else 108"),
      integer(
          "R2CC_PLAN_LINKS", &Config::plan_links, 0, 1,
          "mode 3: 1: plans also take into account NICs that are slow although their ports do not say so"),
      integer("R2CC_MEMORY_NODE", &Config::memory_node, -1, 1023,
              "NUMA node of all buffers; -1: the kernel is asked"),
      integer(
          "R2CC_CROSS_SOCKET", &Config::cross_socket, 0, 100,
          "the percentage of its rate at which a NIC reaches memory on another socket; 0: unknown, and 50 "
          "is assumed once traffic is spread"),
      milliseconds("R2CC_SUSPECT_MS", &Config::suspect_after, 1, 60000,
                   "a path that stalls for this long is probed (adapts upward), ms"),
      milliseconds("R2CC_PROBE_MS", &Config::probe_deadline, 1, 60000,
                   "if a probe is not answered for this long, the path is dead (adapts upward, to at most a "
                   "quarter of R2CC_FAIL_BOUND_MS or 2 s, whichever is shorter), ms"),
      milliseconds("R2CC_STUCK_MS", &Config::stuck_after, 10, 600000,
                   "a QP that makes no progress for this long, although probes succeed, is replaced, ms"),
      milliseconds("R2CC_REGISTER_MS", &Config::register_bound, 10, 600000,
                   "a NIC that takes longer to register a buffer is abandoned, ms"),
      milliseconds("R2CC_CONTROL_MS", &Config::control_bound, 10, 600000,
                   "a peer process that cannot be reached over TCP for this long, while no data moves, "
                   "counts as ended, "
                   "ms. Unless this is set: not sooner than R2CC_FAIL_BOUND_MS"),
      milliseconds("R2CC_FENCE_MS", &Config::fence_bound, 10, 60000,
                   "bound for fencing a path (making sure that nothing can arrive over it any more), ms"),
      milliseconds("R2CC_FENCE_DELAY_MS", &Config::fence_delay, 0, 1000,
                   "for debugging: each fence takes at least this long, ms"),
      milliseconds(
          "R2CC_REMOVAL_MS", &Config::removal_bound, 10, 3600000,
          "if a receiver's kernel has not stopped a failed device within this time, the channel ends in an "
          "error, ms"),
      milliseconds("R2CC_FAIL_BOUND_MS", &Config::fail_bound, 10, 3600000,
                   "a channel without a working path for this long is an error, ms. Unless this is set: not "
                   "sooner than a QP would give up (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT; at most 60 s)"),
      milliseconds("R2CC_FAILBACK_MS", &Config::failback_settle, 1, 600000,
                   "a repaired rail must answer probes for this long before it is used, ms"),
      milliseconds("R2CC_FAILBACK_MAX_MS", &Config::failback_ceiling, 1, 3600000,
                   "longest wait before a flapping rail is tried again, ms"),
      milliseconds("R2CC_CONNECT_MS", &Config::connect_bound, 100, 3600000,
                   "bound for connection set-up, ms"),
  };
  return all;
}

/// As r2ccl/collective names them.
constexpr std::string_view kAlgorithms[] = {"ring",       "unequal_ring", "double_tree", "r2ccl_allreduce",
                                            "four_stage", "mix",          "direct"};

Error refusal(const char* variable, const char* text, const std::string& why) {
  return Error{ErrorCode::kInvalidConfig, std::string(variable) + "='" + text + "' " + why};
}

bool is_nccls(const char* variable) { return std::strncmp(variable, "NCCL_", 5) == 0; }

/// As NCCL reads a number: of any base that C knows, and of what follows it nothing is said. What it reads no
/// number of is 0; what does not fit into 64 bits is the default.
void read_as_nccl(const Field& field, const char* text, Config& config) {
  errno = 0;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 0);
  const auto pass_over = [&](const std::string& why) {
    config.warnings.push_back(std::string(field.variable) + "='" + text + "' " + why + " (" + field.meaning +
                              ")");
  };
  if (errno != 0) return pass_over("is no number that fits; the default is used");
  const bool chooses_default = value == -1 && (std::string_view(field.variable) == "NCCL_IB_TC" ||
                                               std::string_view(field.variable) == "NCCL_IB_SL");
  if (chooses_default) return;
  if (value < field.least || value > field.most)
    return pass_over("is not from " + std::to_string(field.least) + " to " + std::to_string(field.most) +
                     "; the default is used");
  if (*end != '\0') pass_over("is read as " + std::to_string(value) + ", as NCCL does");
  field.write(config, long(value));
}

/// NCCL_IB_ADDR_FAMILY and NCCL_IB_ADDR_RANGE.
AddressRange read_address_range(const char* family_text, const char* range_text, Config& config) {
  const auto pass_over = [&](const char* variable, const char* text, const std::string& why) {
    config.warnings.push_back(std::string(variable) + "='" + text + "' " + why + "; it is ignored");
  };
  AddressFamily family = AddressFamily::kIpv4;
  if (family_text && *family_text) {
    if (family_text == std::string(name(AddressFamily::kIpv6)))
      family = AddressFamily::kIpv6;
    else if (family_text != std::string(name(AddressFamily::kIpv4)))
      pass_over("NCCL_IB_ADDR_FAMILY", family_text, "is neither AF_INET nor AF_INET6");
  }
  if (!range_text || !*range_text) return AddressRange(family);
  auto range = AddressRange::parse(family, range_text);
  if (range) return *range;
  pass_over("NCCL_IB_ADDR_RANGE", range_text, range.error().message);
  return AddressRange(family);
}

}  // namespace

const char* name(Mode mode) {
  // clang-format off
  switch (mode) {
    case Mode::kBaseline: return "baseline";
    case Mode::kMigrate: return "migrate";
    case Mode::kBalance: return "balance";
    case Mode::kAllReduce: return "allreduce";
  }
  // clang-format on
  return "unknown";
}

Result<Config> Config::from(const std::function<const char*(const char*)>& get) {
  Config config;
  for (const Field& field : fields()) {
    const char* text = get(field.variable);
    if (!text || !*text) continue;
    if (is_nccls(field.variable)) {
      read_as_nccl(field, text, config);
      continue;
    }
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || errno != 0 || value < field.least || value > field.most)
      return refusal(field.variable, text,
                     "is not a whole number from " + std::to_string(field.least) + " to " +
                         std::to_string(field.most) + " (" + field.meaning + ")");
    field.write(config, value);
  }
  if (const char* text = get("R2CC_ALGORITHM"); text && *text) {
    const auto& known = kAlgorithms;
    if (std::find(std::begin(known), std::end(known), std::string_view(text)) == std::end(known))
      return refusal(
          "R2CC_ALGORITHM", text,
          "is none of ring, unequal_ring, double_tree, r2ccl_allreduce, four_stage, mix and direct");
    config.algorithm = text;
  }
  if (const char* text = get("R2CC_FAIL_BOUND_MS"); text && *text) config.fail_bound_given = true;
  if (const char* text = get("R2CC_CONTROL_MS"); text && *text) config.control_bound_given = true;
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "R2CC_SOCKET_IFNAME"})
    if (const char* text = get(variable); text && *text) config.socket_interface = text;
  if (const char* text = get("NCCL_SOCKET_FAMILY")) config.socket_family = text;
  if (const char* text = get("NCCL_COMM_ID")) config.comm_id = text;
  if (const char* text = get("R2CC_TOPOLOGY")) config.topology_file = text;
  if (const char* text = get("R2CC_NODE_SCOPE")) config.node_scope = text;
  if (const char* text = get("R2CC_METRICS")) config.metrics_file = text;
  if (const char* text = get("NCCL_IB_HCA"); text && *text) config.hca_filter = text;
  const char* const range_text = get("NCCL_IB_ADDR_RANGE");
  config.address_range = read_address_range(get("NCCL_IB_ADDR_FAMILY"), range_text, config);
  if (range_text) config.address_range_text = range_text;
  return config;
}

Result<Config> Config::from_environment() {
  return from([](const char* variable) { return static_cast<const char*>(std::getenv(variable)); });
}

Config::Milliseconds Config::no_path_bound() const {
  if (fail_bound_given) return fail_bound;
  if (ib_timeout == 0) return kMostFailBound;  // such a queue pair waits for ever
  const auto retries =
      std::chrono::nanoseconds((uint64_t{4096} << ib_timeout) * uint64_t(ib_retry_count + 1));
  return std::clamp(std::chrono::duration_cast<Milliseconds>(retries), fail_bound, kMostFailBound);
}

Config::Milliseconds Config::unreached_bound() const {
  return control_bound_given ? control_bound : std::max(control_bound, no_path_bound());
}

std::vector<Config::Entry> Config::entries() const {
  const auto value = [this](const Field& field) {
    const std::string_view variable = field.variable;
    if (variable == "R2CC_FAIL_BOUND_MS") return long(no_path_bound().count());
    if (variable == "R2CC_CONTROL_MS") return long(unreached_bound().count());
    return field.read(*this);
  };
  std::vector<Entry> out;
  for (const Field& field : fields())
    out.push_back({field.variable, std::to_string(value(field)), field.meaning});
  out.push_back({"R2CC_SOCKET_IFNAME", socket_interface,
                 "interface for control connections, in the syntax of NCCL_SOCKET_IFNAME"});
  out.push_back(
      {"R2CC_ALGORITHM", algorithm, "mode 3: forces the schedule of every AllReduce, for measurements"});
  out.push_back(
      {"R2CC_METRICS", metrics_file,
       "file for counters in Prometheus' text format (%p: process id), written at most once a second"});
  out.push_back(
      {"R2CC_TOPOLOGY", topology_file,
       "file with the machine's topology, in the format of 'lstopo --of xml'; empty: hwloc detects it"});
  out.push_back({"R2CC_NODE_SCOPE", node_scope,
                 "processes of one host with different values count as different nodes"});
  out.push_back({"NCCL_IB_ADDR_FAMILY", name(address_range.family()), "family of the GID's address"});
  out.push_back(
      {"NCCL_IB_ADDR_RANGE", address_range_text, "network of the GID's address, such as 10.1.0.0/16"});
  out.push_back({"NCCL_IB_HCA", hca_filter, "which devices to use ('^' excludes, '=' exact names)"});
  return out;
}

}  // namespace r2ccl
