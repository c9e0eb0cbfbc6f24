// One fault at work in one context (one opened device of one process). Each kind is a class of its own in a
// file of its own; noop.cc is the template and README.md says how to write one.
//
// A Fault exists from when it is armed until it is healed. All calls come with the context's mutex held, so a
// Fault needs no locks; it must not block and must call no exported verbs function itself: what it may do to
// the program is in Context.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "faultinject/control/board.h"
#include "faultinject/control/effects.h"

namespace faultinject {

class Context;
struct QueuePair;
struct HeldWr;
struct Sent;

class Fault {
 public:
  explicit Fault(FaultEntry& entry) : entry_(entry) {}
  virtual ~Fault() = default;
  FaultEntry& entry() const { return entry_; }
  uint32_t id() const { return entry_.id; }
  bool begun = false;  // it has fired and begin() has been called; end() makes it false again

  // Does it strike ports, so that it also concerns a queue pair whose *peer* is on the target?
  virtual bool reaches_peers() const { return false; }

  // It fired (or a context was opened while it lasts): called once per context, concerned or not.
  virtual void begin(Context&, uint64_t /*now_ns*/) {}

  // A queue pair of this context reached RTS while the fault lasts.
  virtual void connected(Context&, QueuePair&, uint64_t /*now_ns*/) {}

  // The program posts a send WR while the fault lasts, before it goes anywhere.
  virtual void posting(Context&, QueuePair&, const Sent&, uint64_t /*now_ns*/) {}

  // Must sends of this queue pair be kept back, and the one at the head of the queue until when? (now or
  // earlier: it may go; kAskAgain: not before all other queue pairs have been asked.) held() is called once for
  // each WR as it is kept back, went() when it has been posted.
  static constexpr uint64_t kAskAgain = UINT64_MAX - 1;
  virtual bool holds(const Context&, const QueuePair&) const { return false; }
  virtual void held(Context&, QueuePair&, HeldWr&, uint64_t /*now_ns*/) {}
  virtual uint64_t may_go_at(Context&, QueuePair&, HeldWr&, uint64_t now_ns) { return now_ns; }
  virtual void went(Context&, QueuePair&) {}

  // A send completion is about to be shown; `sent` is its work request where it is known. The fault may
  // rewrite it. False: it must not be shown now (the fault has seen to it that it will be).
  virtual bool completing(Context&, QueuePair&, const Sent* /*sent*/, ibv_wc&, uint64_t /*now_ns*/) { return true; }

  // Healed. Called once, only if begin() was.
  virtual void end(Context&, uint64_t /*now_ns*/) {}

 protected:
  bool hits(const Context& context) const;                        // the context's own NIC is in the target
  bool hits(const Context& context, const QueuePair& qp) const;   // its NIC, or (reaches_peers) its peer's

 private:
  FaultEntry& entry_;
};

// The class for a fault's kind; nullptr for a kind that this library does not know (a newer board).
std::unique_ptr<Fault> make_fault(FaultEntry& entry);

// Is this queue pair the one, or one of those, that the target's selector means? For faults that strike
// queue pairs; kBusiest and kRandom are decided among those that have had traffic.
bool selects(const FaultEntry& entry, const QueuePair& qp);

// True for the first process (and context) that asks for this fault and this NIC: one strike per NIC, not one
// per process.
bool claim_nic(Context& context, const Fault& fault);

}  // namespace faultinject
