// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/agreement_message.h"

#include <algorithm>
#include <cstring>

namespace r2ccl::collective {
namespace {

struct Wire {
  uint8_t type;
  uint8_t sequences;
  uint16_t capacities;
  uint16_t engine_pace;
  uint16_t reserved;
  uint64_t epoch;
  uint64_t points[kSequences];  // of a report: the epoch that was heard of, then 0
};

constexpr size_t kMostBytes = 4096;  // a control frame
static_assert(sizeof(Wire) + kMostAgreeing * sizeof(CapacityCode) <= kMostBytes);

}  // namespace

size_t nics_told(int ranks, size_t nics) {
  const size_t told = std::min(nics, kMostNics);
  // A report is not longer than a proposal, or else short: 1 + told + ranks · told codes.
  return sizeof(Wire) + size_t(ranks) * (1 + told) * sizeof(CapacityCode) <= kMostBytes ? told : 0;
}

std::vector<std::byte> encode(const AgreementMessage& message) {
  Wire wire{uint8_t(message.type),
            message.sequences,
            uint16_t(message.capacities.size()),
            message.engine_pace,
            0,
            message.epoch,
            {}};
  for (size_t i = 0; i < kSequences; ++i) wire.points[i] = message.points[i];
  if (message.type == AgreementMessage::Type::kReport) wire.points[0] = message.heard, wire.points[1] = 0;
  const size_t tail = message.capacities.size() * sizeof(CapacityCode);
  std::vector<std::byte> bytes(sizeof wire + tail);
  std::memcpy(bytes.data(), &wire, sizeof wire);
  if (tail > 0) std::memcpy(bytes.data() + sizeof wire, message.capacities.data(), tail);
  return bytes;
}

Result<AgreementMessage> decode(std::span<const std::byte> bytes, int ranks, size_t nics) {
  using Type = AgreementMessage::Type;
  const Error wrong{ErrorCode::kAuthentication, "what arrived is no message of the agreement on capacities"};
  Wire wire;
  if (bytes.size() < sizeof wire) return wrong;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.type < uint8_t(Type::kReport) || wire.type > uint8_t(Type::kDone)) return wrong;
  AgreementMessage message;
  message.type = Type(wire.type);
  const size_t wanted = message.type == Type::kReport    ? 1 + nics + size_t(ranks) * nics
                        : message.type == Type::kPropose ? size_t(ranks) * (1 + nics)
                                                         : 0;
  if (wire.capacities != wanted || bytes.size() != sizeof wire + wanted * sizeof(CapacityCode) ||
      (wire.sequences & ~kAllSequences) != 0 || wire.epoch == 0)
    return wrong;
  const bool has_pace = message.type == Type::kReport || message.type == Type::kPropose;
  if (wire.engine_pace == 0 || wire.engine_pace > kNominal || (!has_pace && wire.engine_pace != kNominal))
    return wrong;
  message.engine_pace = wire.engine_pace;
  message.sequences = wire.sequences;
  message.epoch = wire.epoch;
  if (message.type == Type::kReport) {
    message.heard = wire.points[0];
  } else {
    for (size_t i = 0; i < kSequences; ++i) message.points[i] = wire.points[i];
  }
  message.capacities.resize(wanted);
  if (wanted > 0)
    std::memcpy(message.capacities.data(), bytes.data() + sizeof wire, wanted * sizeof(CapacityCode));
  // A reason is told in proposals, and of NICs.
  for (size_t i = 0; i < wanted; ++i) {
    const bool may_tell = message.type == Type::kPropose && i % (1 + nics) != 0;
    if ((may_tell ? without_reason(message.capacities[i]) : message.capacities[i]) > kNominal) return wrong;
  }
  return message;
}

}  // namespace r2ccl::collective
