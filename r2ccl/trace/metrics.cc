// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/trace/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "r2ccl/base/log.h"
#include "r2ccl/base/result.h"

namespace r2ccl::trace {
namespace {

/// A counter of each NIC that counts the events of one type.
struct NicCounter {
  EventType type;
  const char* name;
  const char* help;
};
constexpr NicCounter kNicCounters[] = {
    {EventType::kNicDown, "r2ccl_port_failures_total", "Times that a NIC's port went down."},
    {EventType::kProbeFailed, "r2ccl_probe_failures_total",
     "Probes of a stalled path that failed or were not answered."},
    {EventType::kMigrationDone, "r2ccl_migrations_total",
     "Migrations of a channel's traffic that ended, by the NIC that carries it since."},
    {EventType::kFailback, "r2ccl_failbacks_total",
     "Migrations that brought a channel back to its home NIC."},
    {EventType::kPathOpened, "r2ccl_paths_opened_total", "Paths that were opened, after a test transfer."},
    {EventType::kPeerSlow, "r2ccl_slow_peer_waits_total",
     "Stalls that were a slow or stopped peer, not a failure."},
    {EventType::kNicGray, "r2ccl_gray_failures_total",
     "Times that a NIC was found to carry clearly less than its neighbours."},
    {EventType::kNicWell, "r2ccl_gray_recoveries_total",
     "Times that a degraded NIC was found to carry as much as its neighbours again."},
    {EventType::kLaneUp, "r2ccl_lanes_started_total",
     "Lanes that were taken into use: paths that carry segments beside the active one."},
    {EventType::kLaneRests, "r2ccl_lanes_rested_total", "Lanes that were released."},
};

constexpr uint64_t kLeastPauseNs = 1'000'000'000;

std::string expanded(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const char next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
    if (next == 'p') out += std::to_string(getpid());
    if (next == '%') out += '%';
    if (next == 'p' || next == '%')
      ++i;
    else
      out += path[i];
  }
  return out;
}

// The text format's rule for the value of a label.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string label(const char* name, std::string_view value) {
  return std::string(name) + "=\"" + escaped(value) + "\"";
}

void family(std::string& out, const char* name, const char* type, const char* help) {
  out += "# HELP " + std::string(name) + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void single(std::string& out, const char* name, const char* type, const char* help,
            const std::string& value) {
  family(out, name, type, help);
  out += std::string(name) + " " + value + "\n";
}

void labelled(std::string& out, const char* name, const char* help,
              const std::map<std::string, uint64_t>& counts, const char* type = "counter") {
  family(out, name, type, help);
  for (const auto& [labels, count] : counts)
    out += std::string(name) + "{" + labels + "} " + std::to_string(count) + "\n";
}

std::string thousandths(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%llu.%03llu", static_cast<unsigned long long>(value / 1000),
                static_cast<unsigned long long>(value % 1000));
  return text;
}

std::string seconds(uint64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%llu.%09llu", static_cast<unsigned long long>(ns / 1'000'000'000),
                static_cast<unsigned long long>(ns % 1'000'000'000));
  return text;
}

bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += size_t(n);
  }
  return true;
}

}  // namespace

Metrics::Metrics(const std::string& path, std::vector<std::string> nics)
    : path_(expanded(path)), nics_(std::move(nics)), by_nic_(std::size(kNicCounters)) {
  // A series that begins at 0 shows its first increase; one that begins at 1 does not.
  for (size_t i = 0; i < nics_.size(); ++i) {
    const Labels one = nic(uint16_t(i));
    for (Counts& counts : by_nic_) counts[one] = 0;
    gray_now_[one] = 0;
    for (const DetectedBy by :
         {DetectedBy::kCompletion, DetectedBy::kEvent, DetectedBy::kWatchdog, DetectedBy::kPeer})
      failures_[one + "," + label("detected_by", name(by))] = 0;
  }
}

Metrics::Labels Metrics::nic(uint16_t index) const {
  return label("nic", index < nics_.size() ? std::string_view(nics_[index]) : "none");
}

void Metrics::count(const Event& event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    count_locked(event);
  } catch (const std::bad_alloc&) {  // a count that is too low harms nobody; an exception here would
  }
}

void Metrics::count_locked(const Event& event) {
  for (size_t i = 0; i < by_nic_.size(); ++i)
    if (kNicCounters[i].type == event.type) {
      ++by_nic_[i][nic(event.nic)];
      changed_ = true;
    }
  switch (event.type) {
    case EventType::kChannelUp:
      ++channels_;
      break;
    case EventType::kFenceStarted:
      if (event.c == 0) ++failures_[nic(event.nic) + "," + label("detected_by", name(DetectedBy(event.a)))];
      without_path_since_.try_emplace(event.channel, event.time_ns);
      break;
    case EventType::kMigrationDone:
    case EventType::kChannelClosing:  // given up in the middle of a migration: it wants no path any more
      end_outage(event);
      break;
    case EventType::kReplayed:
      replayed_segments_ += event.a;
      replayed_bytes_ += event.b;
      break;
    case EventType::kNicDown:  // what was measured on it is forgotten
    case EventType::kNicWell:
      gray_now_[nic(event.nic)] = 0;
      break;
    case EventType::kNicUp:
      if (event.a == 0) return;  // a path over it, not its port
      gray_now_[nic(event.nic)] = 0;
      break;
    case EventType::kNicGray:
      gray_now_[nic(event.nic)] = 1;
      break;
    case EventType::kPlanAgreed:
    case EventType::kAlgorithmChosen:
    case EventType::kPlansEnded:
      count_plan(event);
      break;
    case EventType::kDuplicateDropped:
      ++duplicates_;
      break;
    case EventType::kChannelFailed:
      ++failed_[label("reason", r2ccl::name(ErrorCode(event.a)))];
      end_outage(event);
      break;
    default:
      return;
  }
  changed_ = true;
}

void Metrics::count_plan(const Event& event) {
  if (event.type == EventType::kPlansEnded) {
    plan_of_.erase(event.channel);
    return;
  }
  Plan& plan = plan_of_[event.channel];
  if (event.type == EventType::kPlanAgreed) {
    ++plans_;
    plan.thousandths = event.c;
    return;
  }
  if (event.a == plan.epoch && event.b < plan.bytes) return;
  plan.epoch = event.a;
  plan.bytes = event.b;
  plan.algorithm = event.c;
}

void Metrics::end_outage(const Event& event) {
  const auto it = without_path_since_.find(event.channel);
  if (it == without_path_since_.end()) return;
  without_path_ns_ += event.time_ns - it->second;
  without_path_since_.erase(it);
}

std::string Metrics::text(uint64_t now) const {
  const std::lock_guard lock(mutex_);
  uint64_t without = without_path_ns_;
  for (const auto& [channel, since] : without_path_since_) without += now > since ? now - since : 0;
  std::string out;
  const auto counter = [&](const char* name, const char* help, const std::string& value) {
    single(out, name, "counter", help, value);
  };
  counter("r2ccl_channels_connected_total", "Channel ends that were connected.", std::to_string(channels_));
  labelled(out, "r2ccl_path_failures_total",
           "Paths that a channel left because they failed, by the local NIC and by how it was detected.",
           failures_);
  for (size_t i = 0; i < by_nic_.size(); ++i)
    labelled(out, kNicCounters[i].name, kNicCounters[i].help, by_nic_[i]);
  labelled(out, "r2ccl_nic_gray",
           "1 while a NIC counts as degraded: it carries clearly less than its neighbours.", gray_now_,
           "gauge");
  counter("r2ccl_replayed_bytes_total", "Bytes that were retransmitted over another path.",
          std::to_string(replayed_bytes_));
  counter("r2ccl_replayed_segments_total", "Segments that were retransmitted over another path.",
          std::to_string(replayed_segments_));
  counter("r2ccl_duplicates_dropped_total", "Segments that arrived twice. Anything but 0 is a defect.",
          std::to_string(duplicates_));
  counter("r2ccl_without_path_seconds_total",
          "Time that channels spent without a path, failbacks included, added up.", seconds(without));
  single(out, "r2ccl_channels_without_path", "gauge", "Channels that have no path at this moment.",
         std::to_string(without_path_since_.size()));
  counter("r2ccl_plans_total", "Plans that groups of mode 3 took: other capacities of the nodes, agreed on by all ranks.",
          std::to_string(plans_));
  uint64_t least = 1000;
  Counts groups;
  for (size_t i = 0; i < kPlannedAlgorithms; ++i) groups[label("algorithm", name(PlannedAlgorithm(i)))] = 0;
  for (const auto& [group, plan] : plan_of_) {
    least = std::min(least, plan.thousandths);
    if (plan.algorithm < kPlannedAlgorithms) ++groups[label("algorithm", name(PlannedAlgorithm(plan.algorithm)))];
  }
  single(out, "r2ccl_plan_capacity", "gauge",
         "What the weakest node carries by the newest plan of each group, relative to its NICs' rates.", thousandths(least));
  labelled(out, "r2ccl_plan_algorithm",
           "Groups whose large AllReduces this runs by their newest plan: nccl, or a schedule of the host engine.", groups,
           "gauge");
  labelled(out, "r2ccl_channels_failed_total", "Channels that ended with an error, by its kind.", failed_);
  return out;
}

void Metrics::write(uint64_t now, bool at_once) noexcept {
  if (written_ && !at_once && now - written_at_ < kLeastPauseNs) return;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!changed_ && without_path_since_.empty()) return;
      changed_ = false;
    }
    written_at_ = now;
    written_ = true;
    // Beside it, so that the renaming is one step; in a name that no collector reads (they take *.prom).
    const std::string part = path_ + ".part" + std::to_string(getpid());
    const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const bool whole = fd >= 0 && write_all(fd, text(now));
    if (fd >= 0) close(fd);
    if (whole && rename(part.c_str(), path_.c_str()) == 0) return;
    const int error = errno;
    if (fd >= 0) unlink(part.c_str());
    if (failed_to_write_) return;
    failed_to_write_ = true;
    R2_WARN("R2CC_METRICS: '%s' cannot be written: %s", path_.c_str(), std::strerror(error));
  } catch (const std::bad_alloc&) {  // the next second tries again
  }
}

}  // namespace r2ccl::trace
