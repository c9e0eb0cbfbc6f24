// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_agent.h"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"
#include "harness/hosts/local_host.h"
#include "harness/launch/rendezvous.h"
#include "harness/base/revision.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using nlohmann::json;
using r2ccl::trace::Event;
using std::chrono::milliseconds;

constexpr milliseconds kTick{2};
constexpr milliseconds kIdle{1000};
constexpr uint64_t kOutputEveryNs = 200 * r2ccl::kNsPerMs;
constexpr size_t kEventsPerFrame = 1 << 15;

class Agent {
 public:
  Agent(SecureLink link, std::string bin_dir, std::string lib_dir)
      : link_(std::move(link)), bin_dir_(std::move(bin_dir)), lib_dir_(std::move(lib_dir)) {}

  std::string serve() {
    while (!told_to_quit_ && !link_.closed()) {
      auto message = link_.receive(host_ ? kTick : kIdle);
      for (; message && !told_to_quit_; message = link_.receive(milliseconds(0))) take(*message);
      if (host_) look(false);
    }
    return told_to_quit_ ? std::string() : link_.why();
  }

 private:
  /// Carries out what the runner says, and answers where it asks.
  void take(const json& message) {
    json answer{{"type", "answer"}};
    if (message.contains("sent_ns")) {
      answer["received_ns"] = r2ccl::now_ns();
      answer["sent_ns"] = message["sent_ns"];
    }
    try {
      carry_out(message, answer);
    } catch (const std::exception& error) {
      answer["refused"] = error.what();
    }
    if (message.contains("request"))
      answer["request"] = message["request"];
    else if (answer.contains("refused"))
      answer["type"] = "trouble";
    else if (message.contains("sent_ns"))
      answer["type"] = "pong";
    else
      return;
    answer["answered_ns"] = r2ccl::now_ns();
    link_.send(answer);
  }

  void carry_out(const json& message, json& answer) {
    const std::string type = message.value("type", "");
    if (type == "ping") return;
    if (type == "quit") {
      told_to_quit_ = true;
    } else if (type == "prepare") {
      prepare(message.at("plan"), answer);
    } else if (type == "release") {
      if (host_) {
        host_->end_ranks();
        look(true);
      }
      host_.reset();
    } else if (!host_) {
      throw std::runtime_error("'" + type + "' was asked of a host without a job");
    } else if (type == "start") {
      start(answer);
    } else if (type == "rank") {
      if (started_) host_->rank(message.at("rank")).send(message.at("message"));
    } else if (type == "signal") {
      answer["time_ns"] = host_->rank(message.at("rank")).signal(message.at("number"));
    } else if (type == "arm") {
      host_->board().arm(fields_from_json<faultinject::FaultSpec>(message.at("spec")),
                         faultinject::TimeOrigin(message.at("origin").get<int>()));
    } else if (type == "decline") {
      host_->decline(r2ccl::trace::EventType(message.at("event").get<int>()));
    } else if (type == "fire") {
      host_->board().fire(message.at("id"));
    } else if (type == "heal") {
      host_->board().heal(message.at("id"));
    } else if (type == "heal_all") {
      host_->board().heal_all();
    } else if (type == "restart_clock") {
      host_->board().restart_clock();
    } else if (type == "witnesses") {
      answer["lost"] = host_->board().witnesses_lost();
      answer["witnesses"] = json::array();
      for (const auto& witness : host_->board().witnesses())
        answer["witnesses"].push_back(fields_to_json(witness));
    } else if (type == "put_back") {
      host_->put_back();
      look(true);
    } else if (type == "threads") {
      const ThreadReport report = host_->threads();
      answer["full"] = report.full;
      answer["brief"] = json::array();
      for (const RankPlan& rank : plan_.ranks) answer["brief"].push_back(report.brief.at(rank.rank));
    } else if (type == "settle") {
      look(true);
    } else {
      throw std::runtime_error("there is no request '" + type + "'");
    }
  }

  void prepare(const json& plan, json& answer) {
    plan_ = HostPlan::from_json(plan);
    // Where the ranks of different hosts find each other: on the network over which the hosts do.
    const std::string interface = interface_of(link_.fd());
    // '=': exactly this one, or eth1 would stand for eth10, too.
    if (!interface.empty()) plan_.inherited.try_emplace("NCCL_SOCKET_IFNAME", "=" + interface);
    started_ = false;
    told_states_.clear();
    told_.assign(plan_.ranks.size(), {});
    host_ = std::make_unique<LocalHost>(bin_dir_, lib_dir_, std::string());
    host_->keep_up(interface);
    try {
      host_->prepare(plan_);
    } catch (...) {
      host_.reset();
      throw;
    }
    answer["evidence"] = host_->evidence();
    answer["devices"] = host_->devices();
    answer["environment"] = host_->environment();
  }

  void start(json& answer) {
    host_->start();
    started_ = true;
    answer["pids"] = json::array();
    for (const RankPlan& rank : plan_.ranks) answer["pids"].push_back(host_->rank(rank.rank).pid());
  }

  /// Tells the runner what is new. `all`: also what else would wait for its turn.
  void look(bool all) {
    host_->tick();
    for (const HostNote& note : host_->notes())
      link_.send({{"type", "note"}, {"time_ns", note.time_ns}, {"name", note.name}, {"text", note.text}});
    const uint64_t now = r2ccl::now_ns();
    const bool with_output = all || now >= output_told_ns_ + kOutputEveryNs;
    if (with_output) output_told_ns_ = now;
    for (size_t i = 0; started_ && i < plan_.ranks.size(); ++i) {
      tell_events(plan_.ranks[i].rank);
      tell_words(plan_.ranks[i].rank, told_[i]);
      if (with_output) tell_output(plan_.ranks[i].rank, told_[i]);
    }
    for (uint32_t id = 1; id <= host_->board().armed(); ++id) {
      const json state = fields_to_json(host_->board().state(id));
      if (told_states_[id] == state) continue;
      told_states_[id] = state;
      link_.send({{"type", "fault"}, {"id", id}, {"state", state}});
    }
  }

  struct Told {
    bool end = false;
    size_t output = 0;
  };

  void tell_words(int rank, Told& told) {
    RankPort& port = host_->rank(rank);
    const auto status = port.ended();  // before its last words, so that these come first
    while (auto message = port.receive())
      link_.send({{"type", "rank"}, {"rank", rank}, {"message", std::move(*message)}});
    if (!status || told.end) return;
    told.end = true;
    link_.send({{"type", "ended"}, {"rank", rank}, {"status", *status}});
  }

  void tell_events(int rank) {
    events_.clear();
    uint64_t lost = host_->drain(rank, events_);
    for (size_t from = 0; from < events_.size() || lost > 0; from += kEventsPerFrame) {
      const size_t count = std::min(kEventsPerFrame, events_.size() - from);
      const auto* bytes = reinterpret_cast<const uint8_t*>(events_.data() + from);
      link_.send({{"type", "events"},
                  {"rank", rank},
                  {"lost", std::exchange(lost, 0)},
                  {"data", json::binary(std::vector<uint8_t>(bytes, bytes + count * sizeof(Event)))}});
    }
  }

  void tell_output(int rank, Told& told) {
    while (true) {
      const std::string text = host_->output(rank, told.output);
      if (text.empty()) return;
      told.output += text.size();
      link_.send({{"type", "output"},
                  {"rank", rank},
                  {"data", json::binary(std::vector<uint8_t>(text.begin(), text.end()))}});
    }
  }

  SecureLink link_;
  std::string bin_dir_, lib_dir_;
  HostPlan plan_;
  std::unique_ptr<LocalHost> host_;
  bool started_ = false, told_to_quit_ = false;
  std::vector<Told> told_;
  std::map<uint32_t, json> told_states_;
  std::vector<Event> events_;
  uint64_t output_told_ns_ = 0;
};

}  // namespace

json agent_hello(int order, int count) {
  const HostFacts facts = facts_of_this_host();
  return {{"type", "hello"},          {"name", facts.name},   {"kernel", facts.kernel},
          {"boot_id", facts.boot_id}, {"cores", facts.cores}, {"revision", build_revision()},
          {"order", order},           {"count", count}};
}

std::string serve_runner(SecureLink link, const std::string& bin_dir, const std::string& lib_dir) {
  return Agent(std::move(link), bin_dir, lib_dir).serve();
}

}  // namespace r2bench
