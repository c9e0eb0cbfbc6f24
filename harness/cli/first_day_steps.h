// SPDX-License-Identifier: Apache-2.0
// What nothing but real NICs can show, as steps in the order in which they risk least.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/first_day_shape.h"

namespace r2bench {

struct FirstDayStep {
  enum class Risk {
    kReads,    ///< looks only, beside small transfers of its own
    kTraffic,  ///< loads the network; faults are injected into our own processes
    kMachine,  ///< changes this machine and puts it back: needs --allow-real-faults
    kByHand,   ///< a person has to do it
  };
  std::string name;
  Risk risk = Risk::kReads;
  std::string shows;    ///< what is unverified until then
  std::string command;  ///< of /bin/sh; R2BENCH is the program, OUT the step's folder, LAUNCH the words for
                        ///< several hosts and for fewer nodes and NICs than the scenario has
  std::string needs;    ///< a command of /bin/sh that fails where the step makes no sense; empty: always
  std::string without;  ///< why it is left out then
  std::string send;     ///< what to send back, beside the step's log
  std::string scenario = "";  ///< that the command runs; empty: none
  NodesAndNics least = {};    ///< with fewer nodes or NICs the scenario shows nothing
};

const std::vector<FirstDayStep>& first_day_steps();

/// What to send back, with the log where there is one.
std::string sent_back(const FirstDayStep& step);

/// The page cloudlab/FIRST_DAY.md.
std::string first_day_page();

}  // namespace r2bench
