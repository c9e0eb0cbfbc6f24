// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/expectation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

Unit unit_of(Quantity quantity) { return quantity == Quantity::kLimit ? Unit::kNone : Unit::kMilliseconds; }

std::string unit_phrase(Unit unit) {
  switch (unit) {
    case Unit::kMilliseconds:
      return "a time";
    case Unit::kPercent:
      return "a percentage";
    case Unit::kNone:
      break;
  }
  return "a plain number";
}

std::string unit_example(Unit unit) {
  switch (unit) {
    case Unit::kMilliseconds:
      return "50 ms";
    case Unit::kPercent:
      return "3 %";
    case Unit::kNone:
      break;
  }
  return "0.95";
}

/// Reads the text from left to right; every error says where it stands.
class Parser {
 public:
  Parser(const MetricInfo& metric, const std::string& text) : metric_(metric), text_(text) {}

  Condition parse() {
    skip_space();
    if (metric_.text) return parse_text();
    if (at_end()) fail("nothing is expected here; write for example " + example());
    if (!metric_.words.empty()) return parse_word();
    Numeric numeric;
    const size_t start = position_;
    const auto comparison = take_comparison();
    numeric.comparison = comparison.value_or(Comparison::kEqual);
    skip_space();
    if (at_end()) fail("the comparison has no right side");
    if (!comparison && !starts_number()) {
      fail_at(start, "expected a comparison such as " + example() + ", found '" + rest() + "'");
    }
    numeric.bound = parse_sum();
    return numeric;
  }

 private:
  bool at_end() const { return position_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  std::string rest() const { return text_.substr(position_); }
  std::string example() const {
    if (!metric_.words.empty()) return "'" + metric_.words.front() + "'";
    return "'<= " + unit_example(metric_.unit) + "'";
  }
  void skip_space() {
    while (!at_end() && std::isspace(static_cast<unsigned char>(peek()))) ++position_;
  }
  bool take(const char* token) {
    const std::string_view wanted(token);
    if (text_.compare(position_, wanted.size(), wanted) != 0) return false;
    position_ += wanted.size();
    return true;
  }
  bool starts_number() const {
    return std::isdigit(static_cast<unsigned char>(peek())) || peek() == '.' || peek() == '-';
  }
  [[noreturn]] static void fail_at(size_t column, const std::string& message) {
    throw ExpressionError{column, message};
  }
  [[noreturn]] void fail(const std::string& message) const { fail_at(position_, message); }

  std::optional<Comparison> take_comparison() {
    if (take("<=")) return Comparison::kLessEqual;
    if (take(">=")) return Comparison::kGreaterEqual;
    if (take("==")) return Comparison::kEqual;
    if (take("!=")) return Comparison::kNotEqual;
    if (take("<")) return Comparison::kLess;
    if (take(">")) return Comparison::kGreater;
    if (take("=")) fail_at(position_ - 1, "'=' is no comparison; write '=='");
    return std::nullopt;
  }

  Text parse_text() {
    static constexpr std::string_view kAnything = "…";
    const auto trimmed = [](std::string piece) {
      const char* space = " \t\n";
      piece.erase(0, std::min(piece.find_first_not_of(space), piece.size()));
      piece.erase(piece.find_last_not_of(space) + 1);
      return piece;
    };
    Text text;
    for (size_t from = position_; from <= text_.size();) {
      const size_t end = std::min(text_.find(kAnything, from), text_.size());
      if (std::string piece = trimmed(text_.substr(from, end - from)); !piece.empty())
        text.pieces.push_back(std::move(piece));
      from = end + kAnything.size();
    }
    if (text.pieces.empty()) fail("no words are given; write the words that the error must contain");
    return text;
  }

  Word parse_word() {
    Word word;
    const size_t start = position_;
    if (const auto comparison = take_comparison()) {
      if (*comparison != Comparison::kEqual && *comparison != Comparison::kNotEqual) {
        fail_at(start, "'" + metric_.name + "' is one of the words " + list_of(metric_.words) +
                           " and has no order; write the word alone, or '!= word'");
      }
      word.negated = *comparison == Comparison::kNotEqual;
    }
    skip_space();
    const size_t word_start = position_;
    word.word = rest();
    while (!word.word.empty() && std::isspace(static_cast<unsigned char>(word.word.back())))
      word.word.pop_back();
    if (std::find(metric_.words.begin(), metric_.words.end(), word.word) == metric_.words.end()) {
      fail_at(word_start, "'" + metric_.name + "' cannot be '" + word.word + "'; it is one of " +
                              list_of(metric_.words) + did_you_mean(word.word, metric_.words));
    }
    return word;
  }

  Sum parse_sum() {
    Sum sum;
    bool negative = false;
    for (;;) {
      skip_space();
      const size_t start = position_;
      Unit unit = Unit::kNone;
      Term term = parse_term(unit);
      term.negative = negative;
      if (unit != metric_.unit) {
        fail_at(start, "'" + metric_.name + "' is " + unit_phrase(metric_.unit) + ", but '" +
                           text_.substr(start, position_ - start) + "' is " + unit_phrase(unit) +
                           "; write for example '" + unit_example(metric_.unit) + "'");
      }
      sum.terms.push_back(std::move(term));
      skip_space();
      if (at_end()) return sum;
      if (take("+")) {
        negative = false;
      } else if (take("-")) {
        negative = true;
      } else {
        fail("expected '+', '-' or '*', found '" + rest() + "'");
      }
    }
  }

  Term parse_term(Unit& unit) {
    Term term;
    for (;;) {
      skip_space();
      const size_t start = position_;
      const Unit factor_unit = parse_factor(term);
      if (factor_unit != Unit::kNone) {
        if (unit != Unit::kNone) fail_at(start, "a product may hold only one value with a unit");
        unit = factor_unit;
      }
      const size_t end = position_;
      skip_space();
      if (!take("*")) {
        position_ = end;
        return term;
      }
    }
  }

  Unit parse_factor(Term& term) {
    if (at_end()) fail("a number or one of floor, wakeup, limit is missing here");
    if (starts_number()) return parse_number(term);
    const size_t start = position_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_') ++position_;
    const std::string word = text_.substr(start, position_ - start);
    for (const Quantity quantity : {Quantity::kFloor, Quantity::kWakeup, Quantity::kLimit}) {
      if (word == name(quantity)) {
        term.factors.emplace_back(quantity);
        return unit_of(quantity);
      }
    }
    if (word.empty()) fail("expected a number or one of floor, wakeup, limit, found '" + rest() + "'");
    fail_at(start, "unknown name '" + word + "'; the names are floor, wakeup and limit" +
                       did_you_mean(word, {"floor", "wakeup", "limit"}));
  }

  Unit parse_number(Term& term) {
    const size_t start = position_;
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value)) fail("'" + rest() + "' is not a number");
    position_ = static_cast<size_t>(end - text_.data());
    const size_t after_number = position_;
    skip_space();
    const size_t unit_start = position_;
    if (take("%")) {
      term.factors.emplace_back(value);
      return Unit::kPercent;
    }
    while (std::isalpha(static_cast<unsigned char>(peek()))) ++position_;
    const std::string unit = text_.substr(unit_start, position_ - unit_start);
    if (unit.empty()) {
      position_ = after_number;
      term.factors.emplace_back(value);
      return Unit::kNone;
    }
    struct Scale {
      const char* unit;
      double milliseconds;
    };
    for (const Scale& scale : {Scale{"ns", 1e-6}, Scale{"us", 1e-3}, Scale{"µs", 1e-3}, Scale{"ms", 1.0},
                               Scale{"s", 1e3}, Scale{"min", 60e3}}) {
      if (unit == scale.unit) {
        term.factors.emplace_back(value * scale.milliseconds);
        return Unit::kMilliseconds;
      }
    }
    fail_at(unit_start, "unknown unit '" + unit + "' after " + text_.substr(start, after_number - start) +
                            "; times are in ns, us, ms, s or min, percentages in %" +
                            did_you_mean(unit, {"ns", "us", "ms", "s", "min"}));
  }

  const MetricInfo& metric_;
  const std::string& text_;
  size_t position_ = 0;
};

}  // namespace

const MetricInfo* find_metric(const std::string& name) {
  for (const MetricInfo& metric : metrics()) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

Condition parse_condition(const MetricInfo& metric, const std::string& text) {
  return Parser(metric, text).parse();
}

std::optional<double> evaluate(const Sum& sum, const QuantityValue& value) {
  double total = 0;
  for (const Term& term : sum.terms) {
    double product = term.negative ? -1 : 1;
    for (const Factor& factor : term.factors) {
      if (const double* number = std::get_if<double>(&factor)) {
        product *= *number;
      } else {
        const auto known = value(std::get<Quantity>(factor));
        if (!known) return std::nullopt;
        product *= *known;
      }
    }
    total += product;
  }
  return total;
}

bool holds(const std::string& said, const Text& text) {
  size_t at = 0;
  for (const std::string& piece : text.pieces) {
    at = said.find(piece, at);
    if (at == std::string::npos) return false;
    at += piece.size();
  }
  return true;
}

bool compare(double got, Comparison comparison, double bound) {
  switch (comparison) {
    case Comparison::kLess:
      return got < bound;
    case Comparison::kLessEqual:
      return got <= bound;
    case Comparison::kEqual:
      return got == bound;
    case Comparison::kNotEqual:
      return got != bound;
    case Comparison::kGreaterEqual:
      return got >= bound;
    case Comparison::kGreater:
      return got > bound;
  }
  return false;
}

bool exceeds_for_good(double got, Comparison comparison, double bound) {
  switch (comparison) {
    case Comparison::kLess:
      return got >= bound;
    case Comparison::kLessEqual:
    case Comparison::kEqual:
      return got > bound;
    case Comparison::kNotEqual:
    case Comparison::kGreaterEqual:
    case Comparison::kGreater:
      return false;
  }
  return false;
}

std::string slow_motion_note(const std::string& factor) { return " (ms × " + factor + ": slow motion)"; }

const char* name(Quantity quantity) {
  switch (quantity) {
    case Quantity::kFloor:
      return "floor";
    case Quantity::kWakeup:
      return "wakeup";
    case Quantity::kLimit:
      return "limit";
  }
  return "?";
}

const char* name(Comparison comparison) {
  switch (comparison) {
    case Comparison::kLess:
      return "<";
    case Comparison::kLessEqual:
      return "<=";
    case Comparison::kEqual:
      return "==";
    case Comparison::kNotEqual:
      return "!=";
    case Comparison::kGreaterEqual:
      return ">=";
    case Comparison::kGreater:
      return ">";
  }
  return "?";
}

}  // namespace r2bench
