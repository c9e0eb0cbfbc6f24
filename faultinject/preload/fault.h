// SPDX-License-Identifier: Apache-2.0
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
#include <unordered_map>

#include "faultinject/control/board.h"
#include "faultinject/control/effects.h"

namespace faultinject {

class Context;
struct CompletionQueue;
struct QueuePair;
struct HeldWr;
struct Sent;

// A call of the program that a fault may refuse.
struct Call {
  enum class What { kPostSend, kPostReceive, kPoll, kRegister, kModify, kCreate, kResize };
  What what;
  QueuePair* qp = nullptr;              // kPostSend, kPostReceive (nullptr: a shared receive queue), kModify
  const Sent* sent = nullptr;           // kPostSend
  const CompletionQueue* cq = nullptr;  // kPoll
  const ibv_qp_attr* attributes = nullptr;  // kModify
  int mask = 0;                             // kModify
};

class Fault {
 public:
  explicit Fault(FaultEntry& entry) : entry_(entry) {}
  virtual ~Fault() = default;
  FaultEntry& entry() const { return entry_; }
  uint32_t id() const { return entry_.id; }
  bool begun = false;  // it has fired and begin() has been called; end() makes it false again
  uint32_t round = 0;  // the round that was begun
  FaultRound at_work() const { return {id(), round}; }
  std::unordered_map<uint64_t, uint64_t>
      draws;  // trigger `probability`: WRs seen, by serial of their queue pair

  // Does it strike ports, so that it also concerns a queue pair whose *peer* is on the target?
  virtual bool reaches_peers() const { return false; }

  // Must it see what the program posts and polls here? One that has done all that it does to the queue pairs of
  // this context need not; connected() and receives() tell it of further ones. Asked after every change of a
  // queue pair.
  virtual bool watches(const Context&) const { return true; }

  // Does one strike end no round for the others, because it strikes in each process, or at each NIC?
  virtual bool strikes_in_each_process() const { return false; }

  // It fired (or a context was opened while it lasts): called once per context, concerned or not.
  virtual void begin(Context&, uint64_t /*now_ns*/) {}

  // A queue pair of this context reached RTS while the fault lasts.
  virtual void connected(Context&, QueuePair&, uint64_t /*now_ns*/) {}

  // The same for RTR, from where on it receives.
  virtual void receives(Context&, QueuePair&, uint64_t /*now_ns*/) {}

  // The program posts a send WR while the fault lasts, before it goes anywhere. `sent.spoiled` may be set;
  // cut() and lose() make it go nowhere.
  virtual void posting(Context&, QueuePair&, Sent& /*sent*/, uint64_t /*now_ns*/) {}

  // The errno with which a call of the program must fail, before anything is done; 0: not by this fault.
  virtual int refuse(Context&, const Call&, uint64_t /*now_ns*/) { return 0; }

  // Must sends of this queue pair be kept back, and the one at the head of the queue until when? (now or
  // earlier: it may go; kAskAgain: not before all other queue pairs have been asked.) held() is called once
  // for each WR as it is kept back, went() when it has been posted.
  static constexpr uint64_t kAskAgain = UINT64_MAX - 1;
  static constexpr uint64_t kNotByTime = UINT64_MAX;  // not before the fault is healed
  virtual bool holds(const Context&, const QueuePair&) const { return false; }
  virtual void held(Context&, QueuePair&, HeldWr&, uint64_t /*now_ns*/) {}
  virtual uint64_t may_go_at(Context&, QueuePair&, HeldWr&, uint64_t now_ns) { return now_ns; }
  virtual void went(Context&, QueuePair&) {}

  // A successful send completion is about to be shown; `sent` is its work request where it is known. The
  // fault may rewrite it. False: it is never shown (after lose_ack() its failure is, later).
  virtual bool completing(Context&, QueuePair&, const Sent* /*sent*/, ibv_wc&, uint64_t /*now_ns*/) {
    return true;
  }
  // The same for a successful receive completion.
  virtual bool received(Context&, QueuePair&, ibv_wc&, uint64_t /*now_ns*/) { return true; }

  // Called whenever the injector's thread wakes while the fault lasts; returns when it must be called again.
  virtual uint64_t tick(Context&, uint64_t /*now_ns*/) { return UINT64_MAX; }

  // Is this row of the port's GID table empty now?
  virtual bool hides_gid(const Context&, uint32_t /*port*/, uint32_t /*index*/) const { return false; }

  bool hits(const Context& context) const;  // the context's own NIC is in the target
  // Its NIC, or (reaches_peers) its peer's, with the target's port and peer.
  bool hits(const Context& context, const QueuePair& qp) const;
  bool hits_here(const Context& context, const QueuePair& qp) const;   // this end is on the target
  bool hits_there(const Context& context, const QueuePair& qp) const;  // the peer's end is on the target

  // Healed. Called once, only if begin() was.
  virtual void end(Context&, uint64_t /*now_ns*/) {}

 protected:
  // Something has happened to the program: t0, and a record. One that strikes again and again has a record of
  // its first 256 strikes in this process, and of the first one in each round: so t0 of each round is known.
  void struck(Context& context, Effect effect, uint32_t qp_num, uint64_t value, uint64_t now) {
    struck(context, effect, qp_num, value, now, round);
  }
  // The send is of an unreliable queue pair and goes nowhere. Of types other than UD and UC it passes, with
  // one line on stderr.
  void lose(Context& context, const QueuePair& qp, Sent& sent, uint64_t now);
  // The same as struck() for a fault with a `count`: false when all strikes of this round are taken, and then
  // nothing is done. After its last strike the round is over.
  bool strike_counted(Context& context, Effect effect, uint32_t qp_num, uint64_t value, uint64_t now);

 private:
  FaultEntry& entry_;
  void struck(Context& context, Effect effect, uint32_t qp_num, uint64_t value, uint64_t now,
              uint32_t in_round);

  uint32_t recorded_ = 0;
  uint32_t recorded_rounds_ = 0;  // up to this one, from 1, the first strike of each round has a record
};

// The class for the kind of `entry`; nullptr for a kind that this library does not know.
std::unique_ptr<Fault> make_fault(FaultEntry& entry);

// For FaultKind::make.
template <typename OfKind>
std::unique_ptr<Fault> made(FaultEntry& entry) {
  return std::make_unique<OfKind>(entry);
}

// Is this queue pair the one, or one of those, that the target's selector means? For faults that strike
// queue pairs; kBusiest and kRandom are decided among those that have had traffic.
bool selects(const FaultEntry& entry, const QueuePair& qp);

// True for the first process (and context) that asks for this round of the fault and this NIC: one strike per
// NIC, not one per process.
bool claim_nic(Context& context, const Fault& fault);
bool claim_nic(Context& context, const Fault& fault, uint32_t node, uint32_t nic);

// The same for a fault whose round is over with the strike at its NIC. Where the strike is another process's,
// this one ends the round, because that one may be dead.
bool claim_only_strike(Context& context, Fault& fault);

}  // namespace faultinject
