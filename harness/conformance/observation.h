// SPDX-License-Identifier: Apache-2.0
// What a case of the conformance suite saw, beside what the InfiniBand specification or the verbs manual
// pages lead a program to expect. A difference is no failure of the case: it is a deviation, which the table
// explains or not.
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace r2bench::conformance {

struct Observation {
  std::string what;    ///< unique within its case
  std::string wanted;  ///< "SUCCESS", "EINVAL", "a|b": either
  std::string got;
};

/// The case cannot go on: a call that every case needs failed, or something did not happen in time.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device does not have what the case is about, and says so in the way that it should.
class NotOffered : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Notes {
 public:
  void expect(const std::string& what, const std::string& wanted, const std::string& got) {
    observations_.push_back({what, wanted, got});
  }
  void expect_true(const std::string& what, bool got) { expect(what, "yes", got ? "yes" : "no"); }
  const std::vector<Observation>& observations() const { return observations_; }

 private:
  std::vector<Observation> observations_;
};

/// "SUCCESS", "WR_FLUSH_ERR" …
std::string status_name(ibv_wc_status status);
/// "EINVAL"; "0" for none. Calls that return -1 have it in errno: give that.
std::string errno_name(int error);
/// "RTS"
std::string state_name(ibv_qp_state state);
/// "PORT_ERR"
std::string event_name(ibv_event_type type);
/// "SEND", "RECV_RDMA_WITH_IMM" … of a completion
std::string opcode_name(ibv_wc_opcode opcode);

/// Whether `got` is one of wanted's alternatives.
bool fits(const Observation& observation);

void to_json(nlohmann::json& json, const Observation& observation);

}  // namespace r2bench::conformance
