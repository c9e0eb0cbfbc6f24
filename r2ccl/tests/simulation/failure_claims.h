// SPDX-License-Identifier: Apache-2.0
// What the log says of failures must be true: what detected them, how many channels went on, after what time,
// for how long a driver or the control connection was away.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "r2ccl/tests/simulation/faults.h"

namespace r2ccl::simulation {

class FailureClaims {
 public:
  FailureClaims(const Plan& plan, const Fabric& fabric, const Job& job, const Faults& faults,
                Findings& findings)
      : plan_(plan), fabric_(fabric), job_(job), faults_(faults), findings_(findings) {}

  /// A line of the log of that process.
  void line(const std::string& text, int process);
  /// What its trace says.
  void event(const trace::Event& event, int process);

 private:
  using Number = std::pair<int, uint32_t>;  // a channel: process, and its number there
  /// What a channel's end has said of the path that it leaves next.
  struct Said {
    std::string by;
    bool of_peer = false;  // what the peer has detected it by
    int nic = -1;          // of this process, whose failure is told for all channels
  };
  /// A NIC whose failure is told in one line, when the last channel has gone on.
  struct Failure {
    std::string by;
    Time began = 0, last = 0, longest = 0;
    int went_on = 0;
    uint64_t segments = 0;               // sent again
    bool told = false;                   // that it takes long
    std::map<uint32_t, Time> under_way;  // channels, since when
  };
  void left(const Said& said, const trace::Event& event, int process);
  void went_on(const Number& channel);
  void check_detector(const trace::Event& event, int process);
  bool is_true(const trace::Event& event, const End& end, const Path& path) const;
  bool has_just_gone_on(const Number& channel) const;
  bool nic_has_told(int nic) const;
  bool peer_has_left(const End& other, uint32_t path) const;
  void check_said(const std::string& by, const trace::Event& event, int process, bool of_peer);
  void check_failure(const std::string& text, int process);
  void check_outage(const std::string& text, int process);
  void check_driver(const std::string& text, int process);
  void check_flushes(const std::string& text, int process);
  void check_fence(const trace::Event& event, int process);

  const Plan& plan_;
  const Fabric& fabric_;
  const Job& job_;
  const Faults& faults_;
  Findings& findings_;
  std::map<Number, Said> said_;
  std::map<Number, Time> went_on_at_;                   // the last time
  std::map<Number, std::pair<uint64_t, Time>> fences_;  // of which path, since when
  std::map<std::pair<int, int>, Failure> failures_;     // by process and NIC
  // By channel, end (sender), path: what it was left for.
  std::map<std::pair<std::pair<size_t, bool>, uint32_t>, trace::DetectedBy> left_;
};

}  // namespace r2ccl::simulation
