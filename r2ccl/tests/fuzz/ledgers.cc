// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any sequence of immediates, completions and reports, against both ledgers. Beside them the
// plain truth is kept in sets: nothing counts twice, nothing counts that was not opened, what is said to be
// received or done is, and no word of the peer takes a ledger beyond what there is.
#include <map>
#include <set>
#include <vector>

#include "cmake/fuzz/input.h"
#include "r2ccl/protocol/ledger.h"

namespace {

using namespace r2ccl;

/// The receiving end: `kWindow` messages may be open, as Channel keeps it.
template <uint32_t kWindow>
class Receiving {
 public:
  void open() {
    if (ledger_.next() - ledger_.received() >= kWindow) return;
    FUZZ_CHECK(ledger_.open() == opened_);
    ++opened_;
  }

  void arrive(uint32_t word, uint64_t bytes) {
    const wire::Immediate immediate = wire::decode(word);
    FUZZ_CHECK(wire::encode(immediate) == word);
    const uint64_t received = ledger_.received();
    const auto outcome = ledger_.arrive(immediate, bytes);
    FUZZ_CHECK(ledger_.next() == opened_ && ledger_.received() >= received && ledger_.received() <= opened_);
    if (outcome.arrival == Arrival::kSegment || outcome.arrival == Arrival::kMessage) {
      // Only an open message, only by its ticket, and each segment of it once.
      FUZZ_CHECK(outcome.message >= received && outcome.message < opened_);
      FUZZ_CHECK((outcome.message & wire::kTicketMask) == immediate.ticket);
      Message& message = messages_[outcome.message];
      FUZZ_CHECK(message.segments == 0 || message.segments == immediate.segments);
      message.segments = immediate.segments;
      FUZZ_CHECK(immediate.segment < message.segments);
      FUZZ_CHECK(message.arrived.insert(immediate.segment).second);
      message.bytes += bytes;
      FUZZ_CHECK((outcome.arrival == Arrival::kMessage) == message.complete());
    } else {
      FUZZ_CHECK(ledger_.received() == received);
      if (outcome.arrival == Arrival::kDuplicate && outcome.message < opened_)
        FUZZ_CHECK(messages_[outcome.message].arrived.count(immediate.segment) == 1);
    }
    compare();
  }

 private:
  struct Message {
    uint32_t segments = 0;
    std::set<uint32_t> arrived;
    uint64_t bytes = 0;
    bool complete() const { return segments != 0 && arrived.size() == segments; }
  };

  void compare() {
    uint16_t report[kWindow] = {};
    const uint64_t first = ledger_.report(report);
    FUZZ_CHECK(first == ledger_.received());
    for (uint64_t message = first < kWindow ? 0 : first - kWindow; message < opened_; ++message) {
      const Message& truth = messages_[message];
      FUZZ_CHECK(ledger_.complete(message) == truth.complete());
      if (message < first) FUZZ_CHECK(truth.complete());
      if (message >= first || opened_ - message <= kWindow) FUZZ_CHECK(ledger_.bytes(message) == truth.bytes);
      if (message < first) continue;
      uint16_t bits = 0;
      for (const uint32_t segment : truth.arrived) bits = uint16_t(bits | 1u << segment);
      FUZZ_CHECK(ledger_.segments(message) == bits && report[message - first] == bits);
    }
    if (first < opened_) FUZZ_CHECK(!messages_[first].complete());
    FUZZ_CHECK(!ledger_.complete(opened_));
  }

  ReceiveLedgerOf<kWindow> ledger_;
  std::map<uint64_t, Message> messages_;
  uint64_t opened_ = 0;
};

/// The sending end. The receiver's words may be wrong in any way; the ledger must not let them make up
/// messages.
template <uint32_t kWindow>
class Sending {
 public:
  void open(uint32_t segments) {
    if (ledger_.next() - ledger_.confirmed() >= kWindow) return;
    segments = 1 + segments % wire::kMaxSegments;
    const uint64_t message = ledger_.open(segments);
    FUZZ_CHECK(message == segments_.size());
    segments_.push_back(segments);
    compare();
  }
  void completed(uint64_t message, uint32_t segment) {
    const bool known = message < segments_.size() && segments_.size() - message <= kWindow;
    const uint16_t before = known ? ledger_.missing(message) : 0;
    ledger_.completed(message, segment % wire::kMaxSegments);
    if (known) FUZZ_CHECK((ledger_.missing(message) & ~before) == 0);  // nothing is missing again by that
    compare();
  }
  void confirmed(uint64_t up_to) {
    word(up_to, [&] { ledger_.confirmed(up_to); });
  }
  void confirmed_low(uint32_t low) {
    const uint64_t before = ledger_.confirmed();
    ledger_.confirmed_low(low);
    FUZZ_CHECK(ledger_.confirmed() == before || uint32_t(ledger_.confirmed()) == low);
    compare();
  }
  void released(uint64_t up_to) {
    word(up_to, [&] { ledger_.released(up_to); });
  }
  void report(uint64_t first, std::span<const uint16_t> segments) {
    word(first, [&] { ledger_.take_report(first, segments); });
    // What it lists is what is missing: of the open messages that it speaks of, and of none behind them.
    for (uint64_t message = std::max(first, ledger_.confirmed()); message < segments_.size(); ++message) {
      const uint16_t all = ReceiveLedgerOf<kWindow>::full(segments_[message]);
      const uint16_t here = message - first < segments.size() ? segments[message - first] : 0;
      FUZZ_CHECK(ledger_.missing(message) == (all & ~here));
    }
  }

 private:
  template <typename Say>
  void word(uint64_t up_to, Say say) {
    const uint64_t before = ledger_.confirmed();
    say();
    FUZZ_CHECK(ledger_.confirmed() == before || ledger_.confirmed() == up_to);
    compare();
  }
  void compare() {
    const uint64_t confirmed = ledger_.confirmed();
    FUZZ_CHECK(ledger_.next() == segments_.size() && confirmed >= confirmed_ &&
               confirmed <= segments_.size());
    confirmed_ = confirmed;
    FUZZ_CHECK(ledger_.reported() >= confirmed && ledger_.reported() <= segments_.size());
    for (uint64_t message = segments_.size() < kWindow ? 0 : segments_.size() - kWindow;
         message < segments_.size(); ++message) {
      const uint16_t missing = ledger_.missing(message);
      FUZZ_CHECK((missing & ~ReceiveLedgerOf<kWindow>::full(segments_[message])) == 0);
      if (message < confirmed) FUZZ_CHECK(missing == 0);
      // With strict acknowledgement no buffer is given back before the receiver's word; and the word alone
      // does not give one back that a NIC may still read.
      if (ledger_.done(message, true)) FUZZ_CHECK(message < confirmed && ledger_.done(message, false));
    }
    // Of what does not exist yet nothing is known, whatever the peer has said.
    if (segments_.size() - confirmed < kWindow) {
      SendLedgerOf<kWindow> later = ledger_;
      const uint64_t next = later.open(1);
      FUZZ_CHECK(!later.done(next, false) && later.missing(next) == 1);
    }
  }

  SendLedgerOf<kWindow> ledger_;
  std::vector<uint32_t> segments_;
  uint64_t confirmed_ = 0;
};

template <uint32_t kWindow>
void play(fuzz::Input& input) {
  Receiving<kWindow> receiving;
  Sending<kWindow> sending;
  uint16_t segments[kWindow];
  for (int steps = 0; !input.empty() && steps < 400; ++steps) {
    switch (input.byte() % 9) {
      case 0:
        receiving.open();
        break;
      case 1: {  // any word at all
        const auto word = uint32_t(input.number(4));
        receiving.arrive(word, input.number(2));
        break;
      }
      case 2: {  // one that may well be expected
        const uint8_t ticket = input.byte(), rest = input.byte();
        receiving.arrive(uint32_t{ticket} << 9 | uint32_t(rest & 1) << 8 | rest, input.byte());
        break;
      }
      case 3:
        sending.open(input.byte());
        break;
      case 4: {
        const uint64_t message = input.number(1 + input.byte() % 8);
        sending.completed(message, input.byte());
        break;
      }
      case 5:
        sending.confirmed(input.number(1 + input.byte() % 8));
        break;
      case 6:
        sending.confirmed_low(uint32_t(input.number(1 + input.byte() % 4)));
        break;
      case 7:
        sending.released(input.number(1 + input.byte() % 8));
        break;
      default: {
        const uint64_t first = input.number(1 + input.byte() % 8);
        const size_t count = input.byte() % (kWindow + 1);
        for (size_t i = 0; i < count; ++i) segments[i] = uint16_t(input.number(2));
        sending.report(first, std::span(segments, count));
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  if (input.byte() % 2 == 0)
    play<wire::kRingLines>(input);
  else
    play<4>(input);  // a small window comes round more often
  return 0;
}
