// SPDX-License-Identifier: Apache-2.0
// The job of a history: two processes whose programs set up channels, send and receive their messages, and
// close. All that they do goes through the core's Net.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/service/net.h"
#include "r2ccl/tests/simulation/buffers.h"
#include "r2ccl/tests/simulation/findings.h"
#include "r2ccl/tests/simulation/nic.h"

namespace r2ccl::simulation {

enum class Stage { kSetUp, kTraffic, kClosing, kOver };

/// One end of a channel.
struct End {
  size_t channel;
  bool sender;
  int process;
  Stage stage = Stage::kSetUp;
  Listener* listener = nullptr;
  Channel* comm = nullptr;
  Registration* registration = nullptr;
  std::array<std::byte, kHandleBytes> handle{};
  bool handle_taken = false;
  int filled = 0, posted = 0, done = 0;
  std::array<Request*, kSlots> requests{};
  Time rests_until = 0, progress = 0;
  Time arrived = 0;  ///< when the receiver saw the last segment
  bool stayed = false;
  std::string error;
};

constexpr Time kConnectBound = 10 * kSecond;  ///< R2CC_CONNECT_MS of histories that abandon a connect

class Job {
 public:
  Job(const Plan& plan, Fabric& fabric, Findings& findings);
  /// Begins the programs. When both have ended, and nothing is left to do, they stop the scheduler.
  void start();

  // --- reports
  std::function<void()> on_received;  ///< one message
  std::function<void(End&, const Error&)> on_failed;

  // --- what the core's trace says of channels
  void segment_delivered(int process, uint32_t number);
  void came_home(int process, uint32_t number);
  /// Has traffic of any channel?
  bool has_come_home() const { return has_come_home_; }

  Buffers& buffers() { return buffers_; }
  const Buffers& buffers() const { return buffers_; }
  const std::vector<End>& ends() const { return ends_; }
  const End& sender(size_t channel) const { return ends_[2 * channel]; }
  const End& receiver(size_t channel) const { return ends_[2 * channel + 1]; }
  /// The channel that carries traffic and has this number at that process; −1: none.
  int channel_of(int process, uint32_t number) const;
  bool all_set_up() const;
  /// The program of that process looks at nothing until then.
  void pause(int process, Time until) { pauses_until_[process] = until; }

 private:
  struct Handle {
    bool ready = false;
    std::array<std::byte, kHandleBytes> bytes{};
  };
  void program(int process);
  void exit_of(int process, std::unique_ptr<Net>& net);
  void program_over();
  bool step(Net& net, End& end);
  bool set_up(Net& net, End& end);
  bool traffic(Net& net, End& end);
  bool post(Net& net, End& end, int messages, bool& some);
  bool test(Net& net, End& end, bool& some);
  void check_message(const End& end, size_t bytes);
  void fail(End& end, const Error& error, Stage stage = Stage::kClosing);
  void close(Net& net, End& end);
  bool step_abandoned(Net& net, int process);
  void end_abandoned(Net& net, int process);
  Time pause_after(const End& end) const;
  Time rests_until(int process) const;

  const Plan& plan_;
  Fabric& fabric_;
  Findings& findings_;
  Buffers buffers_;
  std::vector<End> ends_;  // of each channel: its sender, its receiver
  std::vector<Handle> handles_;
  std::vector<int> messages_;  // of each channel
  std::vector<bool> slow_;     // channels
  bool has_come_home_ = false;
  struct Abandoned {           // a connect that nobody goes on with
    Handle handle;
    Listener* listener = nullptr;
    int asked = 0;
    Time at = 0;
    bool looked_at = false;
  } abandoned_;
  int programs_done_ = 0, programs_over_ = 0;
  Time pauses_until_[2] = {0, 0};
};

}  // namespace r2ccl::simulation
