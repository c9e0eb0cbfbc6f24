// SPDX-License-Identifier: Apache-2.0
// What travels between two ends of a channel: the connect handle, the CTS entry, the immediate, and the
// control messages. Plain data of fixed layout, little-endian; kWireVersion changes with any of it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "r2ccl/control/endpoint.h"
#include "r2ccl/verbs/port_address.h"

namespace r2ccl::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint16_t kWireVersion = 11;
inline constexpr uint32_t kHandleMagic = 0x4c434332;  // "2CCL"
inline constexpr int kMaxNics = 8;                    ///< NICs of one node that a channel may use
inline constexpr uint32_t kRingLines = 64;            ///< CTS entries: more than requests can be open
inline constexpr uint32_t kCopiedBytes = 16 << 10;    ///< messages up to this size may be sent from a copy
inline constexpr uint32_t kCopyRingBytes = 64 << 10;  ///< so much of copies a sender keeps at most

/// What NCCL carries from listen() to connect(). The last word belongs to the connecting side.
struct Handle {
  uint32_t magic;
  uint16_t version;
  uint8_t mode;
  uint8_t reserved;
  control::Endpoint where;
  uint64_t listener;
  control::Token token;
  uint64_t connect_state;
};

/// One clear-to-send: message `head − 1` may be written to `address`. It counts only when head, tail and
/// check agree, so that it may arrive in any order of bytes.
struct alignas(64) CtsLine {
  uint32_t head;
  uint32_t check;
  uint64_t address;
  uint32_t bytes;
  uint32_t received;        ///< low bits of 'received up to', as of this line
  uint32_t keys[kMaxNics];  ///< remote key per NIC of the receiver
  uint32_t far_nics;        ///< bit i: `address` is across sockets from the receiver's NIC i; kWaitedLong
  uint32_t tail;
};
static_assert(sizeof(CtsLine) == 64);
/// Of CtsLine::far_nics, and of the ACK 'received up to': the newest message that is confirmed has waited for
/// longer than one that asks for its ACK soon.
inline constexpr uint32_t kWaitedLong = 1u << 31;
inline constexpr uint64_t kAckWaitedLong = 1ull << 63;

/// A line's words, as it lies in memory.
using CtsWords = std::array<uint64_t, sizeof(CtsLine) / sizeof(uint64_t)>;
inline constexpr uint64_t kCtsCheckBits = ~uint64_t{0} << 32;  // of the first word
static_assert(offsetof(CtsLine, check) == 4);

/// A mix of every word but `check` itself. The words are mixed side by side: a CPU would wait for each step
/// of a chain, and both ends make this check for each message.
inline uint32_t cts_check(const CtsWords& words) {
  uint64_t sum = 0, place = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = i == 0 ? words[i] & ~kCtsCheckBits : words[i];
    place += 0x9e3779b97f4a7c15;  // the same words in other places are another line
    const uint64_t mix = (word ^ place) * 0xbf58476d1ce4e5b9;
    sum += mix ^ mix >> 32;
  }
  return uint32_t((sum * 0x94d049bb133111eb) >> 32);
}

/// What a line says. `keys`: kMaxNics of them.
struct CtsEntry {
  uint32_t head;
  uint64_t address;
  uint32_t bytes, received;
  const uint32_t* keys;
  uint32_t far_nics;
};
/// Builds the line in whole words: read again as words, a line built of halves would keep the CPU waiting.
inline void write_line(const CtsEntry& entry, CtsLine& line) {
  const auto word = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  CtsWords words{entry.head, entry.address, word(entry.bytes, entry.received)};
  std::memcpy(&words[3], entry.keys, sizeof line.keys);
  words.back() = word(entry.far_nics, entry.head);
  words[0] |= uint64_t{cts_check(words)} << 32;
  auto* const to = reinterpret_cast<uint64_t*>(&line);
  for (size_t i = 0; i < words.size(); ++i) __atomic_store_n(to + i, words[i], __ATOMIC_RELAXED);
}
/// Reads a line that a NIC may be writing: word by word, so that the check decides whether it is whole.
/// False: it is not, or is not that of `head`.
inline bool read_line(const CtsLine& line, uint32_t head, CtsLine& out) {
  const auto* from = reinterpret_cast<const uint64_t*>(&line);
  CtsWords words;
  words[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
  if (uint32_t(words[0]) != head) return false;
  auto* const to = reinterpret_cast<uint64_t*>(&out);
  __atomic_store_n(to, words[0], __ATOMIC_RELAXED);
  for (size_t i = 1; i < words.size(); ++i) {
    words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    __atomic_store_n(to + i, words[i], __ATOMIC_RELAXED);
  }
  return words.back() >> 32 == head && words[0] >> 32 == cts_check(words);
}

/// 23 bits of ticket, 1 bit for 'ACK soon', 4 bits of segment number, 4 bits of segment count − 1.
struct Immediate {
  uint32_t ticket;
  uint32_t segment;
  uint32_t segments;
  bool ack_soon = false;  ///< its sender's program may soon wait for the ACK of this message
};
inline constexpr uint32_t kTicketMask = 0x7fffff;
inline constexpr uint32_t kMaxSegments = 16;
inline uint32_t encode(const Immediate& i) {
  return (i.ticket & kTicketMask) << 9 | uint32_t(i.ack_soon) << 8 | i.segment << 4 | (i.segments - 1);
}
inline Immediate decode(uint32_t word) {
  return {word >> 9, word >> 4 & 0xf, (word & 0xf) + 1, (word >> 8 & 1) != 0};
}

// --- control messages -------------------------------------------------------------------------------------

enum class Type : uint16_t {
  kHello = 1,  ///< connector → acceptor: who I am; said again over another connection until the answer comes
  kWelcome,    ///< acceptor → connector: who I am, and the nonce that keys everything after
  kRefuse,     ///< either: a sentence; the connection ends
  kOpen,       ///< sender → receiver: make your half of a path
  kOpened,     ///< receiver → sender: it is made, or why not
  kProve,      ///< sender → receiver: my probe came back; try yours
  kProved,     ///< receiver → sender: mine too, the path stands by
  kDrop,       ///< either: this path is not to be used
  kMigrate,    ///< either: I leave the active path; fence it
  kFenced,     ///< either: my half of it is stopped, or I cannot stop it, and the other fence has to do;
               ///< receiver: and this is my ledger
  kUse,        ///< sender → receiver: this path is active now
  kNic,        ///< either: one of my NICs is left or came back
  kClose,      ///< either: I am done; receiver: and I have received this much
  kFail,       ///< either: the channel has failed, with the reason
  kAckQuery,  ///< sender → receiver: what have you received? One question at a time. Receiver → sender: I
              ///< wait for a message; ask, should your NIC have reported it
  kReceived,  ///< receiver → sender: this much
  kLane,      ///< sender → receiver: I use this path, which stands by, beside the active one
  kRest,      ///< sender → receiver: no longer; everything that it carried has been confirmed
};

struct Hello {  // also Welcome; the first two fields never move
  uint32_t magic;
  uint16_t version;
  uint8_t mode;
  uint8_t strict_ack;
  uint64_t listener;
  uint64_t process;     ///< random tag of the process
  uint32_t requests;    ///< kMaxRequests
  uint32_t ring_lines;  ///< kRingLines
  uint8_t nics;
  uint8_t home_nic;
  uint16_t copied_bytes;  ///< sender: messages up to this size go from copies, so that nobody waits for their
                          ///< confirmation; 0: none does
  uint32_t channel;       ///< its number in its own process
  control::Endpoint where;  ///< where its process listens
  control::Token nonce;     ///< Welcome only
  char host[64];
  char nic_names[kMaxNics][16];
};

/// A half of a path: what the other side needs to connect and to probe it.
struct PathEnd {
  verbs::PortAddress address;
  uint32_t data_qp;
  uint32_t probe_qp;
  uint32_t first_psn;
  uint32_t probe_key;
  uint64_t probe_word;  ///< address of 8 readable bytes
  uint64_t ring;  ///< sender: address of its CTS ring, kRingLines entries and then the ACK 'received up to',
                  ///< of which the highest bit is kAckWaitedLong
  uint32_t ring_key;
  uint32_t reserved;
};

struct Open {
  uint32_t path;
  uint8_t sender_nic;
  uint8_t receiver_nic;
  uint8_t reserved[2];
  PathEnd end;
};
struct Opened {
  uint32_t path;
  uint32_t ok;
  PathEnd end;
};
struct PathMessage {  // Prove, Proved, Drop, Lane, Rest
  uint32_t path;
};
struct Migrate {
  uint32_t epoch;
  uint32_t path;
  uint32_t detected_by;
  uint32_t planned;
};
struct Fenced {
  uint32_t epoch;
  uint32_t path;
  uint32_t stopped;  ///< 1: nothing can arrive, or be sent, over it at this end any more. 0: this
                     ///< end's device is gone; 1 may follow
  uint32_t reserved;
  uint64_t first_incomplete;      ///< receiver: everything before this message is here
  uint16_t segments[kRingLines];  ///< receiver: what is here of message first_incomplete + i
};
struct Use {
  uint32_t epoch;
  uint32_t path;
};
enum class NicState : uint32_t {
  kDown = 0,  ///< its port is down, or it is gone
  kUp = 1,
  kLeft = 2,  ///< it takes no buffers, so nothing is carried over it any more
};
struct Nic {
  uint32_t nic;
  NicState state;
};
struct Received {     // also Close, where it is the receiver's ACK only, and AckQuery, where it is what the
                      // sender knows
  uint64_t received;  ///< messages received in full
  uint64_t segments;  ///< Received only: bit i: segment i of the next one is here
};
using Close = Received;
struct Sentence {
  uint32_t code;
  char text[508];
};

}  // namespace r2ccl::wire
