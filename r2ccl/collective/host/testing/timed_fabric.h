// SPDX-License-Identifier: Apache-2.0
// Test support: channels within one process over ports with rates, in time of their own. A port sends the
// packets of its messages in turn, one of each channel; what arrives waits at the receiver's port. So the
// executor's order, credits and window show in the time that a stream of operations takes, on any machine.
// A rank may have several ports; rail i joins the i-th ones, and messages take turns on them by rails.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "r2ccl/collective/host/transport.h"

namespace r2ccl::collective::testing_support {

class TimedFabric {
 public:
  static constexpr size_t kPacket = 16 << 10;

  struct Posted {
    void* data = nullptr;
    size_t bytes = 0;
    bool done = false;
  };
  struct Message {
    Posted *from = nullptr, *to = nullptr;
    size_t sent = 0;     // packets' bytes that have left
    size_t arrived = 0;  // … and have arrived
  };
  struct Pipe {
    uint32_t from = 0, to = 0;      // ports
    std::deque<Posted*> receives;   // posted, and known to the sender
    std::deque<Message> messages;   // under way, the oldest first
    size_t leaving = 0;             // index of the one whose packets leave
    bool waiting = false;           // in its port's turn
  };

  /// `rates`: bytes per second of each port in each direction, those of rank 0 first, `rails` of each rank.
  TimedFabric(std::vector<double> rates, double latency, uint32_t rails = 1)
      : rates_(std::move(rates)), latency_(latency), rails_(rails), ports_(rates_.size()) {}

  uint32_t rails() const { return rails_; }
  /// From the next packet on.
  void set_rate(uint32_t port, double rate) { rates_[port] = rate; }
  /// Is told of each message that is posted at its sender, and when it is done there: `from`, `to`: ports.
  using Watch = std::function<void(bool done, uint32_t from, uint32_t to, size_t bytes)>;
  void watch(Watch watch) { watch_ = std::move(watch); }
  Pipe& pipe(uint32_t from, uint32_t to, uint32_t ordinal, uint32_t rail) {
    auto& pipe = pipes_[{from, to, ordinal, rail}];
    if (!pipe) pipe = std::make_unique<Pipe>(Pipe{from * rails_ + rail, to * rails_ + rail, {}, {}, 0, false});
    return *pipe;
  }
  bool can_send(const Pipe& pipe) const { return !pipe.receives.empty(); }
  void send(Pipe& pipe, Posted* posted) {
    pipe.messages.push_back({posted, pipe.receives.front(), 0, 0});
    pipe.receives.pop_front();
    if (watch_) watch_(false, pipe.from, pipe.to, posted->bytes);
    enqueue(pipe);
  }
  void receive(Pipe& pipe, Posted* posted) {
    at(latency_, [this, &pipe, posted] {
      pipe.receives.push_back(posted);
      seen_by_ = pipe.from / rails_;
    });
  }
  /// A rank looks again after so many seconds.
  void wake(uint32_t rank, double delay) {
    at(delay, [this, rank] { seen_by_ = rank; });
  }
  double now() const { return now_; }
  double sent_by(uint32_t port) const { return ports_[port].sent; }
  /// The events up to the next one that a rank can see (a receive that its peer posted, or a message that is
  /// done), and that rank. None: there is no such event.
  std::optional<uint32_t> step() {
    for (seen_by_.reset(); !seen_by_;) {
      if (events_.empty()) return {};
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.what();
    }
    return seen_by_;
  }

 private:
  struct Event {
    double time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(time, order) > std::tie(other.time, other.order); }
  };
  struct Packet {
    Pipe* pipe;
    size_t bytes;
  };
  struct Port {
    std::deque<Pipe*> turn;
    bool sending = false;
    double sent = 0;
    std::deque<Packet> arriving;
    bool receiving = false;
  };

  void at(double delay, std::function<void()> what) { events_.push({now_ + delay, order_++, std::move(what)}); }

  void enqueue(Pipe& pipe) {
    if (pipe.waiting || pipe.leaving == pipe.messages.size()) return;
    pipe.waiting = true;
    ports_[pipe.from].turn.push_back(&pipe);
    leave(pipe.from);
  }
  void leave(uint32_t number) {
    Port& port = ports_[number];
    if (port.sending || port.turn.empty()) return;
    Pipe& pipe = *port.turn.front();
    port.turn.pop_front();
    pipe.waiting = false;
    port.sending = true;
    Message& message = pipe.messages[pipe.leaving];
    const size_t bytes = std::min(kPacket, message.from->bytes - message.sent);
    message.sent += bytes;
    if (message.sent == message.from->bytes) ++pipe.leaving;
    port.sent += double(bytes);
    at(double(bytes) / rates_[number], [this, number, &pipe, bytes] {
      ports_[number].sending = false;
      ports_[pipe.to].arriving.push_back({&pipe, bytes});
      arrive(pipe.to);
      enqueue(pipe);
      leave(number);
    });
  }
  void finish(Posted* posted, uint32_t port) {
    posted->done = true;
    seen_by_ = port / rails_;
  }
  void arrive(uint32_t number) {
    Port& port = ports_[number];
    if (port.receiving || port.arriving.empty()) return;
    const Packet packet = port.arriving.front();
    port.arriving.pop_front();
    port.receiving = true;
    at(double(packet.bytes) / rates_[number], [this, number, packet] {
      ports_[number].receiving = false;
      Pipe& pipe = *packet.pipe;
      Message& message = pipe.messages.front();
      message.arrived += packet.bytes;
      if (message.arrived == message.from->bytes) {
        std::memcpy(message.to->data, message.from->data, message.from->bytes);
        at(latency_, [this, posted = message.to, &pipe] { finish(posted, pipe.to); });
        at(2 * latency_, [this, posted = message.from, &pipe] {
          if (watch_) watch_(true, pipe.from, pipe.to, posted->bytes);
          finish(posted, pipe.from);
        });
        pipe.messages.pop_front();
        --pipe.leaving;
      }
      arrive(number);
    });
  }

  std::vector<double> rates_;
  const double latency_;
  const uint32_t rails_;
  std::vector<Port> ports_;
  Watch watch_;
  double now_ = 0;
  std::optional<uint32_t> seen_by_;  // the rank that can see the last event
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::unique_ptr<Pipe>> pipes_;
};

class TimedTransport final : public Transport {
 public:
  TimedTransport(TimedFabric& fabric, uint32_t rank) : fabric_(fabric), rank_(rank) {}

  uint32_t end(uint32_t peer, bool sends, uint32_t ordinal) {
    const auto [known, fresh] = numbers_.try_emplace({peer, sends, ordinal}, uint32_t(ends_.size()));
    if (fresh) {
      End& end = ends_.emplace_back();
      for (uint32_t rail = 0; rail < fabric_.rails(); ++rail)
        end.pipes.push_back(sends ? &fabric_.pipe(rank_, peer, ordinal, rail)
                                  : &fabric_.pipe(peer, rank_, ordinal, rail));
      end.turns = RailTurns(fabric_.rails(), (sends ? rank_ : peer) + ordinal);
    }
    return known->second;
  }
  Result<void*> isend(uint32_t end, const void* data, size_t bytes, Registration* /*registration*/) override {
    End& from = ends_[end];
    TimedFabric::Pipe& pipe = *from.pipes[from.rail];
    if (!fabric_.can_send(pipe)) return static_cast<void*>(nullptr);
    TimedFabric::Posted* const posted = open(const_cast<void*>(data), bytes);
    fabric_.send(pipe, posted);
    from.turns.took();
    return static_cast<void*>(posted);
  }
  Result<void*> irecv(uint32_t end, void* data, size_t bytes, Registration* /*registration*/) override {
    TimedFabric::Posted* const posted = open(data, bytes);
    End& to = ends_[end];
    fabric_.receive(*to.pipes[to.rail], posted);
    to.turns.took();
    return static_cast<void*>(posted);
  }
  void route(uint32_t end, const RailShares* rails) override {
    ends_[end].turns.set(rails ? *rails : even_shares(fabric_.rails()));
  }
  RailTurns::Message next(uint32_t end, size_t chunk, size_t posted, size_t most) override {
    const RailTurns::Message& message = ends_[end].turns.next(chunk, posted, most);
    ends_[end].rail = message.rail;
    return message;
  }
  Result<TestOutcome> test(void* message) override {
    auto* const posted = static_cast<TimedFabric::Posted*>(message);
    if (!posted->done) return TestOutcome{};
    const TestOutcome outcome{true, posted->bytes};
    open_.erase(posted);
    return outcome;
  }
  Clock::time_point now() const override {
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(fabric_.now())));
  }
  Result<StagingMemory> staging(size_t bytes) override {
    staging_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return StagingMemory{staging_.back().get(), nullptr};
  }

 private:
  struct End {
    std::vector<TimedFabric::Pipe*> pipes;  // by rail
    RailTurns turns;
    size_t rail = 0;  // of the next message
  };
  TimedFabric::Posted* open(void* data, size_t bytes) {
    auto posted = std::make_unique<TimedFabric::Posted>(TimedFabric::Posted{data, bytes, false});
    TimedFabric::Posted* const raw = posted.get();
    open_[raw] = std::move(posted);
    return raw;
  }

  TimedFabric& fabric_;
  const uint32_t rank_;
  std::map<std::tuple<uint32_t, bool, uint32_t>, uint32_t> numbers_;
  std::vector<End> ends_;
  std::map<TimedFabric::Posted*, std::unique_ptr<TimedFabric::Posted>> open_;
  std::vector<std::unique_ptr<std::byte[]>> staging_;
};

}  // namespace r2ccl::collective::testing_support
