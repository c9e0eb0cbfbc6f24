// SPDX-License-Identifier: Apache-2.0
// Simulated NICs behind libibverbs: RC queue pairs that carry out their work in order, lose, repeat, flush
// and freeze as real ones do. A packet is read from the sender's memory when it is sent, taken in by the
// receiver's NIC when it arrives, and placed some time later; a queue pair in ERR takes nothing in, and its
// flushes come behind everything that it had taken in.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "r2ccl/tests/simulation/fifo.h"
#include "r2ccl/tests/simulation/scheduler.h"

namespace r2ccl::simulation {

struct Nic;
struct Queue;

struct Work {
  ibv_wr_opcode opcode;
  uint64_t id = 0;
  bool signaled = false;
  uint8_t* data = nullptr;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;
  bool has_inline = false;
  uint8_t inlined[64];
  bool done = false;  ///< the receiver's NIC has placed it
};

/// What lies before a queue pair's handle, so that the one can be had from the other.
struct Pair {
  ibv_qp handle{};
  Nic* nic = nullptr;
  Queue* queue = nullptr;
  ibv_qp_state state = IBV_QPS_RESET;
  bool gone = false;
  int remote_nic = -1;
  uint32_t remote_number = 0;
  unsigned timeout = 0, retries = 7;
  uint32_t first = 0;          ///< number of the first work request that is not acknowledged
  Fifo<Work> sending;          ///< from that one on
  uint32_t next_expected = 0;  ///< as a receiver
  Fifo<uint64_t> receiving;    ///< posted receives
  int taken_in = 0;            ///< packets that wait to be placed
  unsigned attempt = 0;
  Time deadline = 0;       ///< of the retransmission timer; 0: it is off
  uint32_t timed = 0;      ///< `first` when it was set
  bool timer_set = false;  ///< an event looks at the deadline
  bool flush_begun = false;
  Time last_arrival = 0;
  bool asked_again = false;  ///< as a receiver: a packet is missing, and the sender is told
};

struct Queue {
  ibv_cq handle{};
  Nic* nic = nullptr;
  Fifo<ibv_wc> entries;
};

struct Nic {
  int number = 0;  ///< over all processes
  int process = 0;
  int index = 0;  ///< within its process
  std::string name;
  ibv_device device{};
  ibv_context context{};
  ibv_comp_channel removal{};
  ibv_pd domain{};
  std::deque<ibv_async_event> events;

  double bytes_per_ns = 12.5;
  Time command_time = 5 * kMicrosecond;
  Time busy_until = 0;
  std::map<uint32_t, std::unique_ptr<ibv_mr>> regions;

  // --- what is the matter with it
  bool port_up = true;
  bool deaf = false;         ///< packets vanish on their way to it and from it
  Time frozen_until = 0;     ///< it does nothing at all: what it has taken in is placed later
  Time driver_returns = 0;   ///< commands do not return before then
  bool refuses = false;      ///< commands are answered with EIO
  bool gone = false;         ///< the kernel has destroyed its queue pairs
  bool pretends = false;     ///< it says that it has carried commands out, and has not (internal error)
  int lose_completions = 0;  ///< of the next so many writes
  int lose_immediates = 0;
  int lose_lines = 0;
  int refuse_posts = 0;  ///< of the next so many writes of messages
  Time late = 0;         ///< packets take so much longer, at most
  bool ever_faulty = false;
  bool unstoppable = false;  ///< nobody could say when it stopped: it may read what was given back

  uint64_t commands = 0;
  std::vector<Time> under_way;  ///< commands, since when; the oldest first
};

/// What NICs have told their processes, and those have read.
struct Told {
  std::vector<bool> errors;  ///< by a queue pair's number: a completion with an error, or a post was refused
  std::set<int> events;      ///< NICs, over all processes, that an asynchronous event came from
  std::set<int> down;  ///< … of which the last word, in an event or asked for, is that the port is down
  void error(uint32_t pair) {
    if (errors.size() <= pair) errors.resize(2 * size_t(pair));
    errors[pair] = true;
  }
  bool has_error(uint32_t pair) const { return pair < errors.size() && errors[pair]; }
};

/// Hears what NICs do to memory.
struct MemoryWatch {
  virtual ~MemoryWatch() = default;
  virtual void written(const Nic& nic, const uint8_t* at, size_t bytes) = 0;
  virtual void read(const Nic& nic, const uint8_t* at, size_t bytes) = 0;
  virtual void broken(const std::string& what) = 0;
};

class Fabric {
 public:
  explicit Fabric(Random& random) : random(random) {}
  Nic& add(int process, int index, double bytes_per_ns);
  Pair& add_pair(Nic& nic);
  /// nullptr: it has been destroyed.
  Pair* find(uint32_t number) const {
    Pair* const pair = ever_made(number);
    return pair && !pair->gone ? pair : nullptr;
  }
  Random& random;
  MemoryWatch* watch = nullptr;
  bool stops_late = false;  ///< a queue pair that has been moved to ERR still sends what its NIC had begun
  Time latency = 3 * kMicrosecond;
  Time lifetime = 20 * kMillisecond;  ///< no packet is on its way for longer
  std::vector<std::unique_ptr<Nic>> nics;
  std::set<std::pair<int, int>> cut;  ///< rails, by the NICs' numbers, that carry nothing

  Told told;

  // --- faults that happen at once
  void port(Nic& nic, bool up, bool told);
  bool pair_error(Nic& nic, bool told);  ///< of any that works; false: none does
  bool pair_error(uint32_t number, bool told);
  void remove(Nic& nic, Time kernel_after);
  void stop(Nic& nic);
  void say(Nic& nic, ibv_event_type type, ibv_qp* pair = nullptr);
  int left(int process) const;
  /// Something that these NICs have sent to each other is not acknowledged.
  bool in_flight(int nic, int other) const;

  bool carries(const Nic& a, const Nic& b) const {
    return a.port_up && b.port_up && !a.deaf && !b.deaf && !a.gone && !b.gone && !a.refuses && !b.refuses &&
           !is_cut(a, b) && !is_cut(b, a);
  }
  // --- the engine
  void transmit(Pair& pair, uint32_t from);
  void flush(Pair& pair);
  void complete(Pair& pair, const ibv_wc& entry);
  uint32_t next_key = 1;

 private:
  /// One on its way: the work, with its bytes as they were when it was sent.
  struct Packet {
    uint32_t from, index;
    Work work;
    std::vector<uint8_t> payload;
  };
  using PacketPtr = std::unique_ptr<Packet>;
  using Answer = std::unique_ptr<const std::vector<uint8_t>>;  // of a READ
  Pair* ever_made(uint32_t number) const {
    const size_t i = number - kFirstNumber;
    return i < pairs_.size() ? pairs_[i].get() : nullptr;
  }
  bool is_cut(const Nic& a, const Nic& b) const { return !cut.empty() && cut.contains({a.number, b.number}); }
  PacketPtr new_packet();
  void send_packet(uint32_t pair, uint32_t number, bool begun = false);
  void arrive(PacketPtr packet);
  void place(PacketPtr packet, uint32_t to);
  void acknowledge(uint32_t from, uint32_t number, Answer answer);
  void arm(Pair& pair);
  void set_timer(Pair& pair);
  void fail(Pair& pair, ibv_wc_status status);
  Time unfrozen(const Nic& nic) const { return std::max(scheduler().now(), nic.frozen_until); }

  static constexpr uint32_t kFirstNumber = 100;
  std::vector<std::unique_ptr<Pair>> pairs_;  // by their numbers; also those that are gone
  std::vector<PacketPtr> spare_packets_;      // with the memory of their payloads
};

/// The fabric of this history.
extern Fabric* g_fabric;

}  // namespace r2ccl::simulation
