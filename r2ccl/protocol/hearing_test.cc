// SPDX-License-Identifier: Apache-2.0
// Which control messages an end takes in: all that it may be in, with each kind of message.
#include "r2ccl/protocol/hearing.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr Word kAll[] = {Word::kFailure, Word::kGreeting, Word::kClose, Word::kAnswer, Word::kOther};

TEST(Hearing, an_end_that_is_in_use_takes_in_everything) {
  EXPECT_EQ(hearing(Word::kOther, {}), Hearing::kTakeIn);
  EXPECT_EQ(hearing(Word::kClose, {}), Hearing::kPeerClosed);
}

TEST(Hearing, nothing_comes_before_the_greeting) {
  for (const Word word : {Word::kGreeting, Word::kClose, Word::kOther})
    for (const bool failed : {false, true})
      EXPECT_EQ(hearing(word, {.greeted = false, .failed = failed}), Hearing::kGreet);
}

TEST(Hearing, a_peer_that_has_failed_says_so_to_any_end) {
  for (const bool greeted : {false, true})
    for (const bool closed : {false, true})
      for (const bool failed : {false, true})
        EXPECT_EQ(hearing(Word::kFailure, {greeted, closed, failed}), Hearing::kFail);
}

TEST(Hearing, an_end_that_is_over_notes_only_that_the_peer_is_closed) {
  for (const HearingSight& over : {HearingSight{.closed = true}, HearingSight{.failed = true}})
    for (const Word word : kAll) {
      if (word == Word::kFailure) continue;
      EXPECT_EQ(hearing(word, over), word == Word::kClose ? Hearing::kNoteClosed : Hearing::kIgnore);
    }
}

TEST(Hearing, an_answer_shows_that_the_process_lives_whatever_this_end_has_come_to) {
  EXPECT_TRUE(answers(Word::kAnswer, {}));
  EXPECT_TRUE(answers(Word::kAnswer, {.closed = true}));
  EXPECT_TRUE(answers(Word::kAnswer, {.failed = true}));
  EXPECT_FALSE(answers(Word::kAnswer, {.greeted = false})) << "whose word is that?";
  for (const Word word : {Word::kFailure, Word::kGreeting, Word::kClose, Word::kOther})
    EXPECT_FALSE(answers(word, {}));
  EXPECT_EQ(hearing(Word::kAnswer, {}), Hearing::kTakeIn);
}

TEST(Hearing, knows_the_words_that_end_a_conversation_from_all_others) {
  using wire::Type;
  EXPECT_EQ(word_of(Type::kRefuse), Word::kFailure);
  EXPECT_EQ(word_of(Type::kFail), Word::kFailure);
  EXPECT_EQ(word_of(Type::kHello), Word::kGreeting);
  EXPECT_EQ(word_of(Type::kWelcome), Word::kGreeting);
  EXPECT_EQ(word_of(Type::kClose), Word::kClose);
  EXPECT_EQ(word_of(Type::kReceived), Word::kAnswer);
  for (const Type type :
       {Type::kOpen, Type::kOpened, Type::kProve, Type::kProved, Type::kDrop, Type::kMigrate, Type::kFenced,
        Type::kUse, Type::kNic, Type::kLane, Type::kRest, Type::kAckQuery})
    EXPECT_EQ(word_of(type), Word::kOther) << unsigned(type);
}

}  // namespace
}  // namespace r2ccl
