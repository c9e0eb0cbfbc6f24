// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace r2ccl::simulation {
namespace {

constexpr int kAsked = 3;  // times, for a channel that is then abandoned

}  // namespace

Job::Job(const Plan& plan, Fabric& fabric, Findings& findings)
    : plan_(plan),
      fabric_(fabric),
      findings_(findings),
      buffers_(plan),
      handles_(plan.channels.size()),
      slow_(plan.channels.size()) {
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    const Plan::Line& line = plan.channels[i];
    ends_.push_back({i, true, line.sender});
    ends_.push_back({i, false, 1 - line.sender});
    messages_.push_back(line.messages);
  }
}

void Job::start() {
  for (int process = 0; process < 2; ++process)
    scheduler().spawn(process, [this, process] { program(process); });
}

int Job::channel_of(int process, uint32_t number) const {
  for (const End& end : ends_)
    if (end.process == process && end.comm && end.stage == Stage::kTraffic && end.comm->number() == number)
      return int(end.channel);
  return -1;
}

bool Job::all_set_up() const {
  return std::none_of(ends_.begin(), ends_.end(), [](const End& end) { return end.stage == Stage::kSetUp; });
}

void Job::segment_delivered(int process, uint32_t number) {
  if (const int channel = channel_of(process, number); channel >= 0)
    ends_[2 * size_t(channel) + 1].arrived = scheduler().now();
}

// Its program rests for longer from now on, and sends no more than the plan says (later_pause,
// later_messages).
void Job::came_home(int process, uint32_t number) {
  const int which = channel_of(process, number);
  if (which < 0) return;
  has_come_home_ = true;
  if (slow_[size_t(which)]) return;
  const size_t channel = size_t(which);
  slow_[channel] = true;
  const int more = plan_.channels[channel].later_messages;
  const int posted = std::max(sender(channel).posted, receiver(channel).posted);
  if (more > 0) messages_[channel] = std::min(messages_[channel], posted + more);
}

// Until when the program of `process` has nothing to look at: all that it has open rests. 0: something may
// move at any time.
Time Job::rests_until(int process) const {
  Time until = 0;
  for (const End& end : ends_) {
    if (end.process != process || end.stage == Stage::kOver) continue;
    if (end.stage != Stage::kTraffic || end.rests_until <= scheduler().now()) return 0;
    until = until == 0 ? end.rests_until : std::min(until, end.rests_until);
  }
  return until;
}

Time Job::pause_after(const End& end) const {
  const Plan::Line& line = plan_.channels[end.channel];
  if (slow_[end.channel] && line.later_pause > 0) return line.later_pause;
  return line.longer_pause > 0 && end.done % 24 == 0 ? line.longer_pause : line.pause;
}

void Job::fail(End& end, const Error& error, Stage stage) {
  end.error = error.message;
  if (findings_.tell)
    std::printf("%12.6f error at process %d, channel %zu: %s\n", findings_.seconds(), end.process,
                end.channel, error.message.c_str());
  ++findings_.verdict.errors;
  on_failed(end, error);
  end.stage = stage;
}

bool Job::set_up(Net& net, End& end) {
  const Plan::Line& line = plan_.channels[end.channel];
  Handle& handle = handles_[end.channel];
  Result<Channel*> made(static_cast<Channel*>(nullptr));
  if (end.sender) {
    if (!handle.ready) return false;
    if (!std::exchange(end.handle_taken, true)) end.handle = handle.bytes;
    made = net.connect(line.sender_nic, end.handle.data());
  } else {
    if (!end.listener) {
      auto listener = net.listen(line.receiver_nic, handle.bytes.data());
      if (!listener) return fail(end, listener.error(), Stage::kOver), true;
      end.listener = *listener;
      handle.ready = true;
    }
    made = net.accept(end.listener);
  }
  if (!made) return fail(end, made.error()), true;
  if (!*made) return false;
  end.comm = *made;
  auto registered = net.reg(end.comm, buffers_.slot(end.channel, end.sender, 0), size_t(kSlots) * kSlotBytes);
  if (!registered) return fail(end, registered.error()), true;
  end.registration = *registered;
  end.stage = Stage::kTraffic;
  if (findings_.tell)
    std::printf("%12.6f channel %zu is ready at process %d\n", findings_.seconds(), end.channel, end.process);
  end.progress = scheduler().now();
  return true;
}

// False: the channel has failed. `some`: something was posted.
bool Job::post(Net& net, End& end, int messages, bool& some) {
  while (end.posted < messages && end.posted < end.done + kSlots) {
    uint8_t* const data = buffers_.slot(end.channel, end.sender, end.posted);
    const uint32_t bytes = buffers_.size_of(end.channel, end.posted);
    int& open = buffers_.open(end.channel, end.sender, end.posted);
    if (end.sender && end.filled == end.posted) buffers_.fill(end.channel, end.filled++);
    open = 1;
    auto request = end.sender ? net.isend(end.comm, data, bytes, end.registration)
                              : net.irecv(end.comm, data, kSlotBytes, end.registration);
    if (!request) return fail(end, request.error()), false;
    if (!*request) {
      open = 0;
      break;
    }
    end.requests[size_t(end.posted++ % kSlots)] = *request;
    some = true;
  }
  return true;
}

void Job::check_message(const End& end, size_t bytes) {
  if (bytes != buffers_.size_of(end.channel, end.done) || !buffers_.holds(end.channel, end.done))
    findings_.violate("message " + std::to_string(end.done) + " of channel " + std::to_string(end.channel) +
                      " arrived with other bytes than were sent");
}

// False: the channel has failed. `some`: something was done.
bool Job::test(Net& net, End& end, bool& some) {
  const Plan::Line& line = plan_.channels[end.channel];
  const Time now = scheduler().now();
  while (end.done < end.posted) {
    auto outcome = net.test(end.requests[size_t(end.done % kSlots)]);
    if (!outcome) return fail(end, outcome.error()), false;
    if (!outcome->done) break;
    buffers_.open(end.channel, end.sender, end.done) = 0;
    if (end.sender) {
      std::memset(buffers_.slot(end.channel, true, end.done), 0x5a, 64);
    } else {
      check_message(end, outcome->bytes);
      on_received();
    }
    ++end.done;
    findings_.verdict.longest_gap = std::max(findings_.verdict.longest_gap, now - end.progress);
    end.progress = now;
    some = true;
    if (line.pause > 0 && end.done % 8 == 0) {
      end.rests_until = now + pause_after(end);
      end.progress = end.rests_until;
      break;
    }
  }
  return true;
}

bool Job::traffic(Net& net, End& end) {
  const Time now = scheduler().now();
  if (now < end.rests_until) return false;
  bool some = false;
  const int messages = messages_[end.channel];
  if (!post(net, end, messages, some) || !test(net, end, some)) return true;
  if (end.done != messages) return some;
  const bool stays = plan_.all_stay || (end.channel == 0 && end.sender == plan_.sender_stays);
  if (stays && plan_.stays_open > 0 && !end.stayed) {
    end.stayed = true;
    end.rests_until = now + plan_.stays_open;
  } else {
    end.stage = Stage::kClosing;
  }
  return some;
}

void Job::close(Net& net, End& end) {
  if (end.comm) {
    if (end.registration) (void)net.dereg(end.comm, end.registration);
    (void)net.close(end.comm);
  }
  if (end.listener) (void)net.close(end.listener);
  for (int i = 0; i < kSlots; ++i) buffers_.open(end.channel, end.sender, i) = 0;
  end.stage = Stage::kOver;
}

bool Job::step(Net& net, End& end) {
  switch (end.stage) {
    case Stage::kSetUp:
      return set_up(net, end);
    case Stage::kTraffic:
      return traffic(net, end);
    case Stage::kClosing:
      close(net, end);
      return true;
    case Stage::kOver:
      return false;
  }
  return false;
}

// True: it is over, as far as it goes.
bool Job::step_abandoned(Net& net, int process) {
  if (!plan_.abandons) return true;
  Abandoned& one = abandoned_;
  if (process == 1 && !one.listener) {
    auto listener = net.listen(plan_.spared[1], one.handle.bytes.data());
    if (!listener) return findings_.violate("no listener: " + listener.error().message), true;
    one.listener = *listener;
    one.handle.ready = true;
  }
  if (process == 1 || !one.handle.ready) return one.handle.ready;
  if (one.asked == kAsked) return true;
  ++one.asked;
  one.at = scheduler().now();
  auto made = net.connect(plan_.spared[0], one.handle.bytes.data());
  if (!made) findings_.violate("a connect that is abandoned fails: " + made.error().message);
  if (made && *made) (void)net.close(*made), one.asked = kAsked;  // it was quick
  return one.asked == kAsked;
}

void Job::end_abandoned(Net& net, int process) {
  if (!plan_.abandons) return;
  Abandoned& one = abandoned_;
  if (process == 0) {
    Time until = one.at + kConnectBound + 2 * kSecond;
    for (const Fault& fault : plan_.faults)  // a process's own pauses do not count
      if (fault.kind == Fault::Kind::kStop) until += fault.lasts;
    if (scheduler().now() < until) scheduler().sleep(until - scheduler().now());
    // The other channels may only just have been closed, and a path that one of them has left is still there.
    for (until = scheduler().now() + kSecond; fabric_.left(0) > 0 && scheduler().now() < until;)
      scheduler().sleep(kMillisecond);
    if (fabric_.left(0) > 0)
      findings_.violate("queue pairs are left of a connect that nobody asks for any more");
    one.looked_at = true;
    return;
  }
  while (!one.looked_at) scheduler().sleep(kMillisecond);
  if (one.listener) (void)net.close(one.listener);
}

void Job::program(int process) {
  setenv("R2CC_NODE_NAME", process == 0 ? "node0" : "node1", 1);
  auto net = Net::make();
  if (!net) {
    findings_.violate("no Net: " + net.error().message);
    return program_over();
  }
  Time pause = kMicrosecond, moved = 0;
  for (;;) {
    bool some = false, all_over = step_abandoned(**net, process);
    for (End& end : ends_) {
      if (end.process != process) continue;
      some |= step(**net, end);
      all_over &= end.stage == Stage::kOver;
    }
    if (all_over) break;
    if (pauses_until_[process] > scheduler().now()) {
      scheduler().sleep(pauses_until_[process] - scheduler().now());
      continue;
    }
    if (some) moved = scheduler().now();
    // One that has waited for long looks less often, so that histories cost less.
    const Time longest =
        scheduler().now() - moved > 20 * kMillisecond ? 500 * kMicrosecond : 100 * kMicrosecond;
    pause = some ? kMicrosecond : std::min(2 * pause, longest);
    const Time until = plan_.abandons ? 0 : rests_until(process);
    scheduler().sleep(until > scheduler().now() ? until - scheduler().now() : pause);
  }
  exit_of(process, *net);
}

// A process that exits leaves its Net as it is: a thread that its driver keeps still uses it, and so does a
// NIC that nobody could stop. This one waits for both.
void Job::exit_of(int process, std::unique_ptr<Net>& net) {
  ++programs_done_;
  while (programs_done_ < 2) scheduler().sleep(kMillisecond);
  end_abandoned(*net, process);
  while (std::any_of(fabric_.nics.begin(), fabric_.nics.end(), [process](const auto& nic) {
    return nic->process == process &&
           (nic->driver_returns > scheduler().now() || ((nic->refuses || nic->pretends) && !nic->gone));
  }))
    scheduler().sleep(kMillisecond);
  net.reset();
  program_over();
}

void Job::program_over() {
  if (++programs_over_ == 2) scheduler().stop();
}

}  // namespace r2ccl::simulation
