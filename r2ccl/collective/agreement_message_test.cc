// SPDX-License-Identifier: Apache-2.0
// The agreement's messages as bytes: what fits, and what is refused.
#include "r2ccl/collective/agreement_message.h"

#include <gtest/gtest.h>

#include <span>

namespace r2ccl::collective {
namespace {

using Type = AgreementMessage::Type;

TEST(AgreementMessage, nics_travel_as_far_as_a_frame_has_room_for_them) {
  EXPECT_EQ(nics_told(64, 8), 8u);
  EXPECT_EQ(nics_told(2000, 8), 0u);
  AgreementMessage proposal;
  proposal.type = Type::kPropose;
  proposal.epoch = 3;
  proposal.capacities = {7500, 0, kNominal, kNominal, kNominal, kNominal};
  const auto bytes = encode(proposal);
  EXPECT_EQ(decode(bytes, 2, 2).value(), proposal);
  EXPECT_FALSE(decode(bytes, 2, 0).ok());  // of a rank that tells of no NICs
  EXPECT_FALSE(decode(bytes, 3, 2).ok());
}

TEST(AgreementMessage, links_travel_in_reports_and_reasons_in_proposals) {
  AgreementMessage report;
  report.type = Type::kReport;
  report.epoch = 4;
  report.capacities = {7500, 0, kNominal, 0, 0, 5000, kNominal};  // of a node with two NICs, and links to two ranks
  const auto bytes = encode(report);
  EXPECT_EQ(decode(bytes, 2, 2).value(), report);
  report.heard = 3;
  EXPECT_EQ(decode(encode(report), 2, 2).value(), report);
  EXPECT_FALSE(decode(bytes, 3, 2).ok());
  EXPECT_FALSE(decode(bytes, 2, 1).ok());
  const std::span all(bytes);
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(decode(all.first(length), 2, 2).ok());
  auto longer = bytes;
  longer.resize(bytes.size() + sizeof(CapacityCode));
  EXPECT_FALSE(decode(longer, 2, 2).ok());
  for (size_t i = 0; i < report.capacities.size(); ++i)
    for (const CapacityCode wrong : {CapacityCode(kNominal + 1), CapacityCode(5000 | kMeasured), CapacityCode(0xffff)}) {
      AgreementMessage forged = report;
      forged.capacities[i] = wrong;
      EXPECT_FALSE(decode(encode(forged), 2, 2).ok());
    }
  AgreementMessage proposal;
  proposal.type = Type::kPropose;
  proposal.epoch = 4;
  proposal.capacities = {7500, 5000 | kMeasured, kNominal, kNominal, kNominal, kNominal};
  EXPECT_EQ(decode(encode(proposal), 2, 2).value(), proposal);
  proposal.capacities[3] |= kMeasured;  // of a node as a whole
  EXPECT_FALSE(decode(encode(proposal), 2, 2).ok());
  proposal.capacities[3] = kNominal;
  proposal.capacities[4] = CapacityCode((kNominal + 1) | kMeasured);
  EXPECT_FALSE(decode(encode(proposal), 2, 2).ok());
}

TEST(AgreementMessage, the_engines_pace_travels_in_reports_and_proposals) {
  AgreementMessage message;
  message.epoch = 4;
  for (const Type type : {Type::kReport, Type::kReportTaken, Type::kPropose, Type::kReady, Type::kCommit,
                          Type::kAbort, Type::kDone}) {
    message.type = type;
    message.capacities.assign(type == Type::kReport ? 1 : type == Type::kPropose ? 2 : 0, kNominal);
    message.engine_pace = kNominal;
    EXPECT_EQ(decode(encode(message), 2).value(), message);
    message.engine_pace = 4500;
    const auto decoded = decode(encode(message), 2);
    ASSERT_EQ(decoded.ok(), type == Type::kReport || type == Type::kPropose) << int(type);
    if (decoded) {
      EXPECT_EQ(decoded.value(), message);
    }
    for (const CapacityCode wrong :
         {CapacityCode(0), CapacityCode(kNominal + 1), CapacityCode(4500 | kMeasured)}) {
      message.engine_pace = wrong;
      EXPECT_FALSE(decode(encode(message), 2).ok()) << int(type);
    }
  }
}

// A report of the largest groups fits where a proposal does.
TEST(AgreementMessage, a_report_fits_a_frame) {
  for (size_t nics = 1; nics <= kMostNics; ++nics)
    for (int ranks = 1; ranks <= kMostAgreeing; ++ranks) {
      AgreementMessage report;
      report.type = Type::kReport;
      const size_t told = nics_told(ranks, nics);
      report.capacities.resize(1 + told + size_t(ranks) * told);
      ASSERT_LE(encode(report).size(), 4096u) << ranks << " ranks, " << told << " NICs";
    }
}

}  // namespace
}  // namespace r2ccl::collective
