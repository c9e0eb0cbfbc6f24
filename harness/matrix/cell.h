// SPDX-License-Identifier: Apache-2.0
// The fault matrix: what there is to run. A cell is one fault at one moment of one operation at one end of a
// message. Pure: it starts nothing.
#pragma once

#include <string>
#include <vector>

#include "faultinject/plan/kind.h"
#include "harness/scenario/scenario.h"

namespace r2bench::matrix {

/// When the fault strikes. The message is always one that node 0 sends to node 1.
enum class Moment {
  kConnect,       ///< the first path is being opened
  kFirstMessage,  ///< the first message has just been posted
  kMidMessage,    ///< a message is half through
  kLastSegment,   ///< the last segment of the job has just been posted
  kReplay,        ///< a migration is writing what was lost once more, over another path
  kFailback,      ///< traffic is on its way back to the home NIC
  kClose,         ///< an end is about to take its queue pairs down
};
/// At whose NIC.
enum class Side { kSender, kReceiver, kBoth };

/// One row of the matrix: a kind of fault with its parameters, as the kind declares it.
struct FaultRow {
  std::string name;               ///< port_down_silent
  std::string parameters;         ///< `kind: port_down, events: false`
  faultinject::Example declared;  ///< what the kind says of it
};

struct Cell {
  const FaultRow* fault = nullptr;
  Moment moment = Moment::kConnect;
  Operation op = Operation::kAllReduce;
  Side side = Side::kSender;

  std::string name() const;  ///< port_down/mid_message/SendRecv/sender
};

const char* name(Moment moment);        ///< "mid_message"
const char* name(Side side);            ///< "sender"
const char* column_name(Operation op);  ///< "SendRecv"

const std::vector<FaultRow>& fault_rows();
const std::vector<Moment>& moments();
const std::vector<Operation>& operations();
const std::vector<Side>& sides();

/// Every cell, empty ones included, in the order of the table.
std::vector<Cell> all_cells();
/// Those of `mode` (allreduce has AllReduce only: the others go as in mode balance) whose name matches one of
/// `patterns` ("port_down/*/SendRecv/*"; a part that is left out at the end
/// is "*"). Throws UsageError for a pattern that matches none.
std::vector<Cell> chosen(const std::vector<std::string>& patterns, const std::string& mode = "migrate");

/// Why this cell cannot be run: a fault that has no such moment, or not at that end. Empty: it can.
std::string why_empty(const FaultRow& fault, Moment moment, Side side);

/// What the cell's job must come to.
enum class Expected {
  kSurvives,        ///< it ends well with every element right
  kExplainedError,  ///< an error within a bound that says which NIC and why; nothing wrong was delivered
};
struct Expectation {
  Expected outcome = Expected::kSurvives;
  std::string reason;              ///< why it cannot survive; empty when it must
  std::vector<std::string> words;  ///< the plugin's error has one of these
};
/// `on_engine`: cell_scenario.h.
Expectation expected(const Cell& cell, bool on_engine);

}  // namespace r2bench::matrix
