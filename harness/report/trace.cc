// SPDX-License-Identifier: Apache-2.0
#include "harness/report/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "faultinject/plan/plan.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;
using Trace = nlohmann::ordered_json;

constexpr int kNicTracks = 10'000;  // channels' tracks are below
constexpr int kGroupTracks = 20'000;
constexpr int kOverlap = 100'000;   // and what does not nest in its own track is this much above it
constexpr double kForEver = std::numeric_limits<double>::infinity();

/// Whole nanoseconds in microseconds.
double rounded(double us) { return std::round(us * 1e3) / 1e3; }

/// A strike of a fault, in microseconds of the trace.
struct Strike {
  std::string name, kind, target;
  std::optional<faultinject::Target> place;  ///< nullopt: not a NIC
  double begin = 0, end = kForEver;
  Json of_result;
  int track = 0;
};

struct Migration {
  std::string source;
  int64_t channel = 0, path = -1, nic = -1, to = -1;
  uint64_t epoch = 0;
  bool planned = false;
  std::string how, ended = "not complete at the end of the log";
  double fence = 0, fence_done = -1, end = -1;
  uint64_t replayed_segments = 0, replayed_bytes = 0;
};

class Builder {
 public:
  explicit Builder(const StoredRun& run) : run_(run) {
    // Not the first line: the modes' logs are in order of time, each by itself. And a log may begin after a
    // fault.
    std::map<std::string, double> starts_ns;  // first iterations
    first_ns_ = std::numeric_limits<uint64_t>::max();
    for (const Json& event : run.events) {
      const auto time_ns = event["time_ns"].get<uint64_t>();
      first_ns_ = std::min(first_ns_, time_ns);
      starts_ns.try_emplace(event["mode"], double(time_ns) - event["at_ms"].get<double>() * 1e6);
    }
    for (const Json& mode : run.result["runs"])
      for (const Json& fault : mode["faults"])
        if (const auto start = starts_ns.find(mode["mode"]);
            start != starts_ns.end() && fault["t0_at_ms"].is_number())
          first_ns_ = std::min(
              first_ns_, uint64_t(std::max(start->second + fault["t0_at_ms"].get<double>() * 1e6, 0.0)));
  }

  Trace build() {
    for (const Json& run : run_.result["runs"]) add_mode(run);
    std::stable_sort(events_.begin(), events_.end(), [](const Trace& a, const Trace& b) {
      const double at_a = a.value("ts", -1.0),
                   at_b = b.value("ts", -1.0);  // metadata has none, and comes first
      return at_a != at_b ? at_a < at_b : a.value("dur", 0.0) > b.value("dur", 0.0);
    });
    Trace trace;
    trace["displayTimeUnit"] = "ms";
    trace["otherData"] = {
        {"scenario", Trace(run_.result["scenario"])},     {"evidence", Trace(run_.result["evidence"])},
        {"verdict", Trace(run_.result["verdict"])},       {"seed", Trace(run_.result["seed"])},
        {"started_at", Trace(run_.result["started_at"])}, {"source", run_.file.string()}};
    trace["traceEvents"] = std::move(events_);
    return trace;
  }

 private:
  double at(const Json& event) const {
    return rounded(double(event["time_ns"].get<uint64_t>() - first_ns_) / 1e3);
  }

  Trace& add(const char* phase, const std::string& name, const char* category, int pid, int tid, double ts) {
    events_.push_back(
        {{"name", name}, {"cat", category}, {"ph", phase}, {"ts", rounded(ts)}, {"pid", pid}, {"tid", tid}});
    return events_.back();
  }
  void name_process(int pid, const std::string& name) {
    events_.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"tid", 0}, {"args", {{"name", name}}}});
    events_.push_back({{"name", "process_sort_index"},
                       {"ph", "M"},
                       {"pid", pid},
                       {"tid", 0},
                       {"args", {{"sort_index", pid}}}});
  }
  void name_track(int pid, int tid, const std::string& name) {
    if (!named_.insert({pid, tid}).second) return;
    events_.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
    events_.push_back({{"name", "thread_sort_index"},
                       {"ph", "M"},
                       {"pid", pid},
                       {"tid", tid},
                       {"args", {{"sort_index", tid}}}});
  }
  Trace& slice(const std::string& name, const char* category, int pid, int tid, double begin, double end) {
    Trace& event = add("X", name, category, pid, tid, begin);
    event["dur"] = rounded(std::max(rounded(end) - rounded(begin), 0.0));  // neighbours meet exactly
    return event;
  }
  Trace& instant(const Json& event, int pid, int tid) {
    Trace& made = add("i", event["event"].get<std::string>(), "event", pid, tid, at(event));
    made["s"] = "t";
    made["args"] = {{"text", Trace(event["text"])}, {"at_ms", Trace(event["at_ms"])}};
    return made;
  }

  int process_of(const std::string& mode, const std::string& source) {
    const auto [found, added] = processes_.try_emplace({mode, source}, int(processes_.size()) + 1);
    if (added) name_process(found->second, mode + ": " + source);
    return found->second;
  }
  int group_track(int pid, int64_t group) {
    name_track(pid, kGroupTracks + int(group), "plans of group " + std::to_string(group));
    return kGroupTracks + int(group);
  }
  int channel_track(int pid, int64_t channel) {
    name_track(pid, int(channel) + 1, "channel " + std::to_string(channel));
    return int(channel) + 1;
  }
  int nic_track(int pid, int64_t nic) {
    name_track(pid, kNicTracks + int(nic), "NIC " + std::to_string(nic));
    return kNicTracks + int(nic);
  }
  /// The first track from `tid` on in which a slice of [begin, end] overlaps none before it.
  int free_track(int pid, int tid, const std::string& name, double begin, double end) {
    for (int track = tid, copy = 1;; track += kOverlap, ++copy) {
      double& until = busy_until_.try_emplace({pid, track}, -kForEver).first->second;
      if (begin < until) continue;
      until = end;
      if (copy > 1) name_track(pid, track, name + " (" + std::to_string(copy) + ")");
      return track;
    }
  }

  void add_mode(const Json& run) {
    const std::string mode = run["mode"];
    std::vector<const Json*> log;
    for (const Json& event : run_.events)
      if (event["mode"] == mode) log.push_back(&event);
    if (log.empty()) return;
    end_ = at(*log.back());
    zero_ = at(*log.front()) - (*log.front())["at_ms"].get<double>() * 1e3;
    const int faults_pid = process_of(mode, "faults and rate");
    add_strikes(run, faults_pid);
    add_rate(mode, faults_pid);
    open_.clear();
    remote_nic_.clear();
    finished_.clear();
    down_since_.clear();
    gray_since_.clear();
    for (const Json* event : log) add_event(mode, *event, faults_pid);
    for (auto& [key, migration] : open_) finish(migration, end_);
    for (const auto& [key, since] : down_since_) nic_slice("port down", key, since, end_);
    for (const auto& [key, since] : gray_since_) nic_slice("gray", key, since, end_);
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Migration& a, const Migration& b) { return a.fence < b.fence; });
    for (const Migration& migration : finished_) draw(mode, migration, faults_pid);
  }

  void add_strikes(const Json& run, int pid) {
    strikes_.clear();
    std::map<std::string, int> tracks;
    for (const Json& fault : run["faults"]) {
      if (fault["t0_at_ms"].is_null()) continue;
      Strike strike;
      strike.name = fault["name"], strike.kind = fault["kind"], strike.target = fault["target"];
      strike.begin = zero_ + fault["t0_at_ms"].get<double>() * 1e3;
      if (strike.begin > end_) continue;  // of another job of the mode, whose log was not kept
      if (!fault["healed_at_ms"].is_null()) strike.end = zero_ + fault["healed_at_ms"].get<double>() * 1e3;
      strike.of_result = fault;
      try {
        strike.place = faultinject::parse_target(strike.target);
      } catch (const faultinject::PlanError&) {  // a rank: nothing migrates because of it
      }
      strikes_.push_back(std::move(strike));
    }
    std::stable_sort(strikes_.begin(), strikes_.end(),
                     [](const Strike& a, const Strike& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < strikes_.size(); ++i) {
      Strike& strike = strikes_[i];
      const std::string title = strike.kind + " " + strike.target;
      const int own = 10 + tracks.try_emplace(title, int(tracks.size())).first->second;
      name_track(pid, own, title);
      const double until = std::max(std::min(strike.end, end_), strike.begin);
      strike.track = free_track(pid, own, title, strike.begin, until);
      Trace& made = slice(strike.name, "fault", pid, strike.track, strike.begin, until);
      made["args"] = {{"kind", strike.kind}, {"target", strike.target}};
      for (const char* key :
           {"sampled", "detect_ms", "migrate_ms", "recover_ms", "blackout_ms", "detected_by"})
        made["args"][key] = strike.of_result[key];
    }
  }

  void add_rate(const std::string& mode, int pid) {
    if (!run_.timeline.is_object()) return;
    for (const Json& curve : run_.timeline["modes"]) {
      if (curve.value("mode", "") != mode || !curve.contains("total")) continue;
      const Json& total = curve["total"];
      for (size_t i = 0; i < total["time_ms"].size() && i < total["gbps"].size(); ++i) {
        const double ts = zero_ + total["time_ms"][i].get<double>() * 1e3;
        if (ts >= 0)
          add("C", "delivered Gbit/s", "rate", pid, 0, ts)["args"] = {{"Gbit/s", Trace(total["gbps"][i])}};
      }
    }
  }

  void add_event(const std::string& mode, const Json& event, int faults_pid) {
    const std::string source = event["source"], name = event["event"];
    const int64_t nic = event.value("nic", int64_t{-1}), channel = event.value("channel", int64_t{-1});
    if (source.find('/') == std::string::npos) {  // the injector, the runner
      name_track(faults_pid, source == "injector" ? 1 : 2, source);
      instant(event, faults_pid, source == "injector" ? 1 : 2);
      return;
    }
    const int pid = process_of(mode, source);
    const std::pair<int, int64_t> of_nic{pid, nic};
    if (name == "fence_started" || name == "fence_done" || name == "migration_started" ||
        name == "migration_done" || name == "replayed" || name == "channel_failed" ||
        name == "channel_closing")
      follow(source, name, event, nic, channel);
    if (name == "path_opened" || name == "path_accepted")
      remote_nic_[{source, channel, event.value("a", int64_t{-1})}] = event.value("b", nic);
    if (name == "nic_down") down_since_.try_emplace(of_nic, at(event));
    if (name == "nic_gray") gray_since_.try_emplace(of_nic, at(event));
    if (name == "nic_up") end_nic_slice("port down", down_since_, of_nic, at(event));
    if (name == "nic_up" || name == "nic_well") end_nic_slice("gray", gray_since_, of_nic, at(event));
    const bool about_nic = name == "nic_down" || name == "nic_up" || name == "nic_gray" ||
                           name == "nic_well" || name == "path_opening" || name == "path_opened" ||
                           name == "path_accepted" || name == "probe_failed";
    const bool about_group = name == "plan_agreed" || name == "algorithm_chosen" || name == "plans_ended";
    if (about_nic && nic >= 0)
      instant(event, pid, nic_track(pid, nic));
    else if (about_group)
      instant(event, pid, group_track(pid, channel));
    else if (channel >= 0 && name != "fence_started" && name != "fence_done" && name != "migration_started")
      instant(event, pid, channel_track(pid, channel));
  }

  /// A channel's fences and migrations, each path that it leaves by itself.
  void follow(const std::string& source, const std::string& name, const Json& event, int64_t nic,
              int64_t channel) {
    const auto a = event.value("a", uint64_t{0}), b = event.value("b", uint64_t{0});
    const auto for_each_of_channel = [&](auto&& act) {
      for (auto it = open_.begin(); it != open_.end();) {
        const bool over = it->second.source == source && it->second.channel == channel && act(it->second);
        if (over) finish(it->second, at(event));
        it = over ? open_.erase(it) : std::next(it);
      }
    };
    if (name == "fence_started") {
      const std::tuple key{source, channel, int64_t(b)};
      if (const auto before = open_.find(key); before != open_.end()) {
        before->second.ended = "fenced again";
        finish(before->second, at(event));
        open_.erase(before);
      }
      Migration& opened = open_[key];
      opened.source = source, opened.channel = channel, opened.path = int64_t(b), opened.nic = nic;
      opened.planned = event.value("c", uint64_t{0}) == 1;
      static const char* const kBy[] = {"none", "completion", "event", "watchdog", "peer"};
      opened.how = opened.planned ? "planned failback" : a < 5 ? kBy[a] : "?";
      opened.fence = at(event);
    } else if (name == "fence_done") {
      if (const auto found = open_.find({source, channel, int64_t(a)}); found != open_.end())
        found->second.fence_done = at(event);
    } else if (name == "migration_started") {
      if (const auto found = open_.find({source, channel, int64_t(b)}); found != open_.end())
        found->second.epoch = a;
    } else if (name == "replayed") {
      for (auto& [key, migration] : open_) {
        if (migration.source != source || migration.channel != channel) continue;
        migration.replayed_segments += a;
        migration.replayed_bytes += b;
        break;
      }
    } else if (name == "migration_done") {
      for_each_of_channel([&](Migration& migration) {
        if (migration.epoch > b) return false;  // a later one has begun already
        migration.to = nic;
        migration.ended = "traffic on NIC " + std::to_string(nic);
        return true;
      });
    } else {
      for_each_of_channel([&](Migration& migration) {
        migration.ended = name;
        return true;
      });
    }
  }

  void finish(Migration migration, double end) {
    migration.end = end;
    finished_.push_back(std::move(migration));
  }

  void nic_slice(const char* name, const std::pair<int, int64_t>& of_nic, double since, double until) {
    const std::string title = "NIC " + std::to_string(of_nic.second);
    const int own = nic_track(of_nic.first, of_nic.second);
    slice(name, "nic", of_nic.first, free_track(of_nic.first, own, title, since, until), since, until);
  }
  void end_nic_slice(const char* name, std::map<std::pair<int, int64_t>, double>& since,
                     const std::pair<int, int64_t>& of_nic, double now) {
    const auto found = since.find(of_nic);
    if (found == since.end()) return;
    nic_slice(name, of_nic, found->second, now);
    since.erase(found);
  }

  /// The last strike in force before an unplanned fence whose target is the NIC that is left, at either end.
  const Strike* explaining(const Migration& migration) const {
    if (migration.planned) return nullptr;
    const std::string node = migration.source.substr(0, migration.source.find('/'));
    const auto opened = remote_nic_.find({migration.source, migration.channel, migration.path});
    const int64_t remote = opened != remote_nic_.end() ? opened->second : migration.nic;
    const auto touches = [&](const Strike& strike) {
      if (!strike.place || migration.nic < 0 || remote < 0) return false;
      for (int other = 0; other < run_.result["fabric"]["nodes"].get<int>(); ++other) {
        const std::string name = "node" + std::to_string(other);
        const std::string nic = "nic" + std::to_string(name == node ? migration.nic : remote);
        if (faultinject::pattern_matches(strike.place->node, name) &&
            faultinject::pattern_matches(strike.place->nic, nic))
          return true;
      }
      return false;
    };
    const Strike* last = nullptr;
    for (const Strike& strike : strikes_)
      if (strike.begin <= migration.fence && strike.end > migration.fence && touches(strike)) last = &strike;
    return last;
  }

  void draw(const std::string& mode, const Migration& migration, int faults_pid) {
    const int pid = process_of(mode, migration.source);
    const Strike* strike = explaining(migration);
    const double begin = strike != nullptr ? strike->begin : migration.fence;
    const double end = std::max(migration.end, migration.fence);
    const std::string title = "channel " + std::to_string(migration.channel);
    const int track = free_track(pid, channel_track(pid, migration.channel), title, begin, end);
    Trace& whole = slice((migration.planned ? "failback: leaves NIC " : "migration: leaves NIC ") +
                             std::to_string(migration.nic) +
                             (migration.to >= 0 ? " for NIC " + std::to_string(migration.to) : ""),
                         "migration", pid, track, begin, end);
    whole["args"] = {{"detected by", migration.how},
                     {"path", migration.path},
                     {"epoch", migration.epoch},
                     {"ended", migration.ended},
                     {"segments sent again", migration.replayed_segments},
                     {"bytes sent again", migration.replayed_bytes},
                     {"fault", strike != nullptr ? Trace(strike->name) : Trace(nullptr)}};
    if (strike != nullptr) slice("detect", "migration", pid, track, begin, migration.fence);
    const double fenced = migration.fence_done < 0 ? end : std::min(migration.fence_done, end);
    slice("fence", "migration", pid, track, migration.fence, fenced);
    if (fenced < end) slice("migrate", "migration", pid, track, fenced, end);
    if (strike == nullptr) return;
    const int id = ++arrows_;
    add("s", "fault to migration", "arrow", faults_pid, strike->track, strike->begin)["id"] = id;
    Trace& head = add("f", "fault to migration", "arrow", pid, track, migration.fence);
    head["id"] = id;
    head["bp"] = "e";  // to the slice that encloses this moment
  }

  const StoredRun& run_;
  uint64_t first_ns_ = 0;
  Trace events_ = Trace::array();
  std::map<std::pair<std::string, std::string>, int> processes_;  // (mode, source) to pid
  std::set<std::pair<int, int>> named_;
  std::map<std::pair<int, int>, double> busy_until_;  // by (pid, track)
  int arrows_ = 0;
  // Of the mode that is being added:
  double zero_ = 0, end_ = 0;
  std::vector<Strike> strikes_;
  std::map<std::tuple<std::string, int64_t, int64_t>, Migration> open_;  // source, channel, path that is left
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> remote_nic_;  // source, channel, path
  std::vector<Migration> finished_;
  std::map<std::pair<int, int64_t>, double> down_since_, gray_since_;  // by (pid, NIC)
};

}  // namespace

Trace to_trace(const StoredRun& run) {
  if (!run.has_events || run.events.empty())
    throw InputError(
        (run.file.parent_path() / "events.jsonl").string() +
        ": no such file, or it is empty; a trace is made from the event log that r2bench run writes "
        "beside result.json: run the scenario again, or copy its whole folder");
  return Builder(run).build();
}

}  // namespace r2bench
