// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/history.h"

#include <sodium.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "r2ccl/base/log.h"
#include "r2ccl/tests/simulation/aims.h"
#include "r2ccl/tests/simulation/failure_claims.h"
#include "r2ccl/tests/simulation/lane_use.h"
#include "r2ccl/tests/simulation/log_claims.h"
#include "r2ccl/tests/simulation/properties.h"
#include "r2ccl/tests/simulation/system.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::simulation {
namespace {

using Event = trace::EventType;

// What libsodium draws.
struct Seeded {
  static inline Random* random = nullptr;
  static const char* name() { return "simulation"; }
  static uint32_t word() { return uint32_t(random->next()); }
  static void fill(void* out, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(out)[i] = uint8_t(random->next());
  }
};

/// One history while it runs: its parts, and what the core says to them.
class History {
 public:
  History(const Plan& plan, bool tell);
  Verdict run();
  /// What the core reports of itself.
  void event(const trace::Event& event);
  static History* current() { return current_; }

 private:
  static void log(LogLevel level, const char* file, int line, const char* text);

  const Plan& plan_;
  Findings findings_;
  Random random_;
  Fabric fabric_;
  Job job_;
  Faults faults_;
  Migrations migrations_;
  SignWatch sign_;
  Properties properties_;
  LaneUse lane_use_;
  LogClaims claims_;
  FailureClaims failure_claims_;
  static History* current_;
};
History* History::current_ = nullptr;

History::History(const Plan& plan, bool tell)
    : plan_(plan),
      findings_{{}, tell},
      random_(~plan.seed),
      fabric_(random_),
      job_(plan, fabric_, findings_),
      faults_(plan, fabric_, job_, findings_),
      sign_(plan),
      properties_(plan, fabric_, job_, faults_, findings_),
      lane_use_(plan, job_, findings_),
      claims_(plan, faults_, migrations_, findings_),
      failure_claims_(plan, fabric_, job_, faults_, findings_) {
  Seeded::random = &random_;
  g_fabric = &fabric_;
  fabric_.watch = &properties_;
  fabric_.stops_late = plan.stops_late;
  for (int process = 0; process < 2; ++process)
    for (int nic = 0; nic < plan.nics; ++nic) fabric_.add(process, nic, 12.5);
  if (plan.busy_driver) fabric_.nics[size_t(plan.spared[0])]->command_time = kBusyCall;
  job_.on_received = [this] { faults_.received(); };
  job_.on_failed = [this](const End& end, const Error& error) { properties_.failed(end, error); };
}

void History::log(LogLevel, const char*, int, const char* text) {
  Findings& findings = current_->findings_;
  findings.digest(scheduler().now());
  for (const char* c = text; *c; ++c) findings.digest(uint8_t(*c));
  if (std::strstr(text, "migrating its traffic")) ++findings.verdict.migrations;
  const int process = scheduler().process();
  if (findings.tell) std::printf("%12.6f %d: %s\n", findings.seconds(), process, text);
  if (process < 0) return;
  current_->claims_.line(text, process);
  current_->failure_claims_.line(text, process);
}

void History::event(const trace::Event& event) {
  const int process = scheduler().process();
  for (const uint64_t value : {scheduler().now(), uint64_t(process), uint64_t(event.type),
                               uint64_t(event.nic), uint64_t(event.channel), event.a, event.b, event.c})
    findings_.digest(value);
  if (process < 0) return properties_.event(event, migrations_);
  if (event.type == Event::kSegmentDelivered) {
    lane_use_.event(event, process);
    return job_.segment_delivered(process, event.channel);
  }
  if (findings_.tell)
    std::printf("%12.6f %d: event %s, channel %u, NIC %u: %llu %llu %llu\n", findings_.seconds(), process,
                std::string(trace::name(event.type)).c_str(), event.channel, event.nic,
                static_cast<unsigned long long>(event.a), static_cast<unsigned long long>(event.b),
                static_cast<unsigned long long>(event.c));
  migrations_.event(event, process);
  properties_.event(event, migrations_);
  failure_claims_.event(event, process);
  if (event.type == Event::kFailback) job_.came_home(process, event.channel);
  faults_.event(event, process);
  sign_.event(event, process);
}

Verdict History::run() {
  current_ = this;
  set_log_sink(&History::log);
  job_.start();
  properties_.look_at_paths();
  lane_use_.start();
  Verdict& verdict = findings_.verdict;
  const bool ended = scheduler().run(kHistoryBound);
  verdict.events = scheduler().events();
  verdict.simulated = scheduler().now();
  verdict.fates = faults_.fates();
  verdict.sign = sign_.seen();
  if (verdict.violation.empty()) properties_.at_end(ended);
  return verdict;
}

}  // namespace

Verdict run(const Plan& plan, bool tell) {
  static randombytes_implementation seeded{};
  seeded.implementation_name = &Seeded::name;
  seeded.random = &Seeded::word;
  seeded.buf = &Seeded::fill;
  randombytes_set_implementation(&seeded);
  setenv("R2CC_MODE", std::to_string(plan.mode).c_str(), 1);
  setenv("NCCL_IB_TIMEOUT", "14", 1);
  if (plan.failback_settle > 0)
    setenv("R2CC_FAILBACK_MS", std::to_string(plan.failback_settle / kMillisecond).c_str(), 1);
  if (plan.abandons) setenv("R2CC_CONNECT_MS", std::to_string(kConnectBound / kMillisecond).c_str(), 1);
  kernel().scarce = plan.scarce;
  static History* const history = new History(plan, tell);  // its memory is NICs': it stays
  return history->run();
}

}  // namespace r2ccl::simulation

// --- what the core reports of itself: trace::Writer::emit
using r2ccl::trace::EventType;
extern "C" {
void __real__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(r2ccl::trace::Writer*, EventType, uint16_t,
                                                              uint32_t, uint64_t, uint64_t, uint64_t,
                                                              uint32_t);
void __wrap__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(r2ccl::trace::Writer* writer, EventType type,
                                                              uint16_t nic, uint32_t channel, uint64_t a,
                                                              uint64_t b, uint64_t c, uint32_t peer) {
  __real__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(writer, type, nic, channel, a, b, c, peer);
  if (r2ccl::simulation::History* history = r2ccl::simulation::History::current())
    history->event({0, 0, type, nic, channel, a, b, c, peer, 0, 0});
}
}
