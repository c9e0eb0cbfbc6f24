// SPDX-License-Identifier: Apache-2.0
// One opened device of the program: its queue pairs and completion queues, the faults at work on it, and the
// slow path of posts and polls. The fast path (slots.h) comes here only while something must be seen or done.
//
// Locks: one mutex per context, taken before any lock of the provider and never the other way round; the
// provider never calls us. Nothing here waits for the program.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "faultinject/preload/async_events.h"
#include "faultinject/preload/completion_channel.h"
#include "faultinject/preload/fault.h"
#include "faultinject/preload/queue_pair.h"
#include "faultinject/preload/removal.h"

namespace faultinject {

class Process;
struct Slot;

class Context {
 public:
  Context(Process& process, Slot& slot, ibv_context* context, uint32_t node, uint32_t nic, uint32_t ports);
  ~Context();
  Context(const Context&) = delete;

  // --- called by the exported functions and the patched operations ---
  // May the program make a new object or register memory? 0, or the errno with which it must fail. Waits
  // while the device is frozen, as do modify_qp, query_qp, begin_destroy and take_cq.
  int admit(Call::What what);
  void add_cq(ibv_cq* cq);
  std::unique_ptr<CompletionQueue> take_cq(ibv_cq* cq);  // before the real ibv_destroy_cq
  void put_back(std::unique_ptr<CompletionQueue> cq);    // it failed
  void add_channel(ibv_comp_channel* channel);
  std::shared_ptr<CompletionChannel> take_channel(ibv_comp_channel* channel);  // before it is destroyed
  void put_back(ibv_comp_channel* channel, std::shared_ptr<CompletionChannel> known);  // that failed
  // For a call that may sleep while another thread closes the device. nullptr: not made through us.
  std::shared_ptr<CompletionChannel> share_channel(ibv_comp_channel* channel);
  // Where datagrams go that are sent by it.
  void add_ah(const ibv_ah* ah, const ibv_ah_attr& attributes);
  void forget_ah(const ibv_ah* ah);
  void add_qp(ibv_qp* qp, const ibv_qp_init_attr& attributes);
  uint64_t begin_destroy(ibv_qp* qp);  // returns the serial, 0 if unknown
  void end_destroy(ibv_qp* qp, uint64_t serial, bool destroyed);
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
  int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* wcs);  // the number of completions, or a negative errno
  // Completions that a fast-path poll fetched while a fault began: what must not be shown is taken out.
  int review(ibv_cq* cq, int count, ibv_wc* wcs);
  // The same for one that the next poll is to show, behind what waits there already; `late`: it was fetched
  // when the fault had begun for certain.
  void keep(ibv_cq* cq, ibv_wc wc, bool late);
  void after_req_notify(ibv_cq* cq);
  bool shows_port_down(uint32_t port);
  // A command that makes, changes and destroys nothing that we keep: 0, or the errno with which it must fail.
  int command();
  // What a destroy must return without being carried out; nullopt: carry it out.
  std::optional<int> destroy_without_device(Undestroyed::Kind kind, void* object);
  // The same for a completion channel, which libibverbs destroys without asking the device.
  std::optional<int> destroy_channel_without_device(ibv_comp_channel* channel);
  std::vector<Undestroyed> take_undestroyed();  // when the device is closed
  bool is_removed();
  void close_wakers();  // before the real ibv_close_device
  bool hides_gid(uint32_t port, uint32_t index);

  // --- called by the injector's thread ---
  // Takes the board's faults up: what was armed, fired or healed since. Returns nothing; idempotent.
  void sync(uint64_t now_ns);
  // Releases what is due; returns the next moment at which something will be (UINT64_MAX: nothing).
  uint64_t tick(uint64_t now_ns);

  // --- what a Fault may use, with the mutex held ---
  uint32_t node() const { return node_; }
  uint32_t nic() const { return nic_; }
  uint32_t ports() const { return ports_; }
  // The device is being opened: what holds already is no news, so no event tells of it.
  bool opening() const { return opening_; }
  Board& board() const;
  template <typename Visit>
  void each_qp(Visit visit) {
    for (auto& [pointer, qp] : qps_)
      if (!qp->dying) visit(*qp);
  }
  template <typename Visit>
  void each_qp(Visit visit) const {
    for (const auto& [pointer, qp] : qps_)
      if (!qp->dying) visit(std::as_const(*qp));
  }
  template <typename Visit>
  void each_cq(Visit visit) {
    for (auto& [pointer, cq] : cqs_) visit(*cq);
  }
  // Traffic of the queue pair is lost from now on: its real queue pair goes to ERR, and the program sees
  // nothing of it before the emulated retries are exhausted; they are counted from `since_ns` (0: from now)
  // on. True if it was done now.
  bool cut(QueuePair& qp, Fault& fault, uint64_t now_ns, Effect effect = Effect::kQpToErr,
           uint64_t since_ns = 0);
  // The queue pair goes to ERR at once and the program sees its flushes; one in RTS, or (in_any_state) in any
  // state but RESET and ERR. True if it was done now.
  bool strike(QueuePair& qp, Fault& fault, uint64_t now_ns, bool fatal_event, bool in_any_state = false);
  // The delivered work of `wc` is reported as lost: now (wc is rewritten), or after the retries (false: do
  // not show it). The real queue pair goes to ERR.
  bool lose_ack(QueuePair& qp, Fault& fault, ibv_wc& wc, uint64_t now_ns, bool after_retries);
  // A successful receive completion becomes a failure; the queue pair goes to ERR, and no receive behind it
  // succeeds any more.
  void fail_receive(QueuePair& qp, ibv_wc& wc, int status);
  // From now on no acknowledgement comes back (QueuePair::deaf_by). undeafen(): they come back, all at once.
  void deafen(QueuePair& qp, Fault& fault, uint64_t now_ns);
  void undeafen(QueuePair& qp, const Fault& fault);
  // The completion queue shows nothing any more, until revive() by the same fault; what is completed there is
  // lost.
  void kill(CompletionQueue& cq, const Fault& fault);
  void revive(CompletionQueue& cq, const Fault& fault);
  // The device answers no more: no completion and no event is shown, and what the program asks of the device
  // waits.
  void freeze(bool frozen);
  bool frozen() const { return frozen_ != 0; }
  // The device is gone, by and by (removal.h). Its program never gets it back.
  void remove_device(Fault& fault, const RemovalTimes& times, bool internal_error, uint64_t now_ns);
  void push_event(const ibv_async_event& event);
  // A record of the round that the fault is in here; or of another one, that work on its way belongs to.
  void witness(const Fault& fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns) {
    witness(fault.at_work(), effect, qp_num, value, time_ns);
  }
  void witness(FaultRound fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns);
  void show_port_down(bool down, uint32_t port) { port_down_[port] += down ? 1 : -1; }  // port 0: all
  // The fault has done what it does in one round; the next call of the program finds it armed for the next
  // one.
  void round_is_over(Fault& fault, uint32_t round);
  void wake_everybody();
  uint64_t choice(const Fault& fault, const QueuePair& qp) const;  // a number from the seed

  AsyncEvents& events() { return *events_; }
  // For a call that may sleep while another thread closes the device.
  std::shared_ptr<AsyncEvents> share_events() { return events_; }
  ibv_context* device() const { return context_; }
  // Does the device itself have an address in that row of the port's GID table?
  bool has_gid(uint32_t port, uint64_t index) const;
  std::mutex& mutex() { return mutex_; }
  /// A thread waits for the mutex, and the program's threads let it go first.
  bool first_waits() const { return wait_first_.load() != 0; }

 private:
  using QpMap = std::unordered_map<const ibv_qp*, std::unique_ptr<QueuePair>>;

  // With the mutex held, all of them.
  void learn_address(QueuePair& qp, const ibv_qp_attr& attributes, int mask);
  QueuePair* find(const ibv_qp* qp);
  QueuePair* find(uint32_t qp_num);
  CompletionQueue* queue(ibv_cq* cq);
  QueuePair* find_or_adopt(ibv_qp* qp);
  QueuePair& insert(ibv_qp* qp, const ibv_qp_init_attr& attributes);
  void set_life(QueuePair& qp, QueuePair::Life life);
  void sync_locked(uint64_t now_ns);
  // What was armed, fired or healed before a call that may take its time holds for that call, even where the
  // injector's thread has not woken yet.
  void catch_up();
  void refresh_mode();
  bool needs_slow_path() const;
  bool is_on_target(const Fault& fault) const;  // this NIC, or one that a queue pair or datagram goes to

  uint64_t removal_goes_on(uint64_t now_ns);  // the next moment at which it will
  void stop_completions(uint64_t now_ns);
  void kill_queue_pairs(uint64_t now_ns);
  void end_channel(CompletionChannel& channel);
  bool takes_no_commands();
  void note_command(Effect effect, uint32_t qp_num, uint64_t value);
  int modify_without_device(ibv_qp* qp, const ibv_qp_attr& attributes, int mask);
  /// The real queue pair has just come into this state.
  void has_moved(QueuePair& qp, ibv_qp_state state, uint64_t now);
  /// What is kept of a queue pair that is in RESET: nothing.
  void begin_new_life(QueuePair& qp);

  /// The lock, for calls that a program makes in a loop: whoever takes it again at once would keep others
  /// from it, on a busy machine for a second and more.
  std::unique_lock<std::mutex> lock_in_turn();
  /// The same for the injector: before the next of those calls.
  std::unique_lock<std::mutex> lock_first();
  void wait_until_thawed(std::unique_lock<std::mutex>& lock);
  uint64_t tick_locked(uint64_t now_ns);
  /// What the injector's thread would do, where it has ended already.
  void stand_in_for_thread(uint64_t now_ns);
  int refusal(const Call& call, uint64_t now_ns);
  bool some_fault_is_at_work() const;
  bool goes_on_dead(QueuePair& qp, const ibv_qp_attr& attributes, int mask);
  bool move_to_err(QueuePair& qp);
  bool meets_trigger(Fault& fault, const QueuePair& qp, const Sent& sent, uint64_t now_ns);
  void count_triggers(const QueuePair& qp, const Sent& sent, uint64_t now_ns);
  /// What post_one() has counted, and what was done to the WR, where that was not posted after all.
  void take_back(QueuePair& qp, const Sent& sent);
  void strike_again(QueuePair& qp, Sent& sent);
  int post_one(QueuePair& qp, const ibv_send_wr& wr, uint64_t now_ns);
  int hand_over(QueuePair& qp, ibv_send_wr& wr, const Sent& sent, bool refused_by_state, uint64_t now_ns);
  int real_post(QueuePair& qp, ibv_send_wr& wr);
  void end_fault(Fault& fault, uint64_t now_ns);
  bool must_hold(const QueuePair& qp) const;
  void hold(QueuePair& qp, const ibv_send_wr& wr, uint64_t bytes, uint64_t now_ns);
  uint64_t pump(QueuePair& qp, uint64_t now_ns);  // next moment at which its head may go
  uint64_t pump_all(uint64_t now_ns);
  void release_all_held(QueuePair& qp);
  void drop_held(QueuePair& qp);

  bool is_send(const QueuePair& qp, const CompletionQueue& cq, const ibv_wc& wc) const;
  // False: hidden or dropped.
  bool process(CompletionQueue& cq, ibv_wc& wc, uint64_t now_ns);
  Sent retire(QueuePair& qp, const ibv_wc& wc, bool& known);
  bool process_whole(QueuePair& qp, CompletionQueue& cq, ibv_wc& wc, const Sent* sent, bool send,
                     uint64_t now_ns);
  void hide_silent(QueuePair& qp, size_t count);  // the first `count` of qp.sent
  // One to which no acknowledgement comes back (deaf_by) counts as cut from now on, and all that it has sent
  // as lost. False: it is none such. hide_unacknowledged(): when its completion queues are drained.
  bool lose_acknowledgements(QueuePair& qp);
  void hide_unacknowledged(QueuePair& qp);
  void note_seen(const ibv_wc* wcs, int count);
  void stop_watching(QueuePair& qp);
  void report(FaultRound fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns);
  void wake_sleeper(CompletionQueue& cq);
  ibv_pd* waker_pd();  // nullptr: the device has no room for one more
  // `posted_ns`: when a send was posted, 0 where that is not known.
  void hide(QueuePair& qp, CompletionQueue& cq, const ibv_wc& wc, bool send, uint64_t posted_ns);
  void show_hidden(QueuePair& qp, bool program_moved_it);
  void drain(CompletionQueue& cq, uint64_t now_ns);
  void drain_queues(QueuePair& qp, uint64_t now_ns);  // its completion queues
  void wake_sleepers(QueuePair& qp);
  void show_due(uint64_t now_ns);
  void due_at(QueuePair& qp, uint64_t time_ns);
  int take_ready(CompletionQueue& cq, int entries, ibv_wc* wcs);
  void forget_completions(QueuePair& qp);

  Process& process_;
  Slot& slot_;
  ibv_context* context_;
  const uint32_t node_, nic_, ports_;
  const std::shared_ptr<AsyncEvents> events_;

  std::mutex mutex_;
  std::atomic<uint32_t> wait_first_{0};  // threads in lock_first()
  QpMap qps_;
  std::unordered_map<uint32_t, QueuePair*> by_number_;
  std::unordered_map<const ibv_cq*, std::unique_ptr<CompletionQueue>> cqs_;
  std::unordered_map<const ibv_comp_channel*, std::shared_ptr<CompletionChannel>> channels_;
  std::unordered_map<const ibv_ah*, NicAddress> ahs_;  // those that lead to a NIC of the board
  std::vector<std::unique_ptr<Fault>> faults_;
  struct Counted {
    uint32_t fault_id;
    uint64_t step;  // of FaultEntry::progress
    bool met;
  };
  std::vector<Counted> counted_;  // of the WR that is being posted
  uint32_t faults_seen_ = 0;
  int port_down_[256] = {};
  DeviceRemoval removal_;
  std::vector<Undestroyed> undestroyed_;
  ibv_pd* waker_pd_ = nullptr;
  uint32_t frozen_ = 0;  // faults that freeze the device
  std::condition_variable thawed_;
  std::vector<ibv_async_event> frozen_events_;
  uint32_t watched_ = 0;   // queue pairs with next_seen_by
  bool sync_due_ = false;  // a round ended in the middle of a hook
  uint32_t held_ = 0;                  // WRs held back in this context
  uint64_t pumped_ = 0;                // WRs let go so far
  uint64_t next_due_ns_ = UINT64_MAX;  // the least shown_at_ns of the queue pairs that are cut
  uint32_t cuts_ = 0;                  // queue pairs that are cut
  uint64_t next_serial_ = 1;           // of queue pairs
  uint64_t next_held_ = 1;             // HeldWr::serial
  bool opening_ = true;                // until the first sync() has ended
  bool mode_dirty_ = false;            // what needs_slow_path() depends on has changed
};

// Destroys what the program could not, in the order in which they stand. After the context is unpatched.
void destroy_for_real(const std::vector<Undestroyed>& objects);

}  // namespace faultinject
