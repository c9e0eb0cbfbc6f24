// SPDX-License-Identifier: Apache-2.0
#include "harness/report/json_lines.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

namespace r2bench {
namespace {

/// Where the parser reads, and on which line what it read last stands: it may read a character ahead, so a
/// line ends with the character behind its '\n'.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (after_newline_) ++*line_;
    after_newline_ = *at_++ == '\n';
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* line_;
  bool after_newline_ = false;
};

class Lines : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Lines(const size_t& line) : line_(line) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(size_t) override { return begin(false); }
  bool start_array(size_t) override { return begin(true); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    at_ = member_pointer(open_.back().pointer, name);
    found.emplace(at_, line_);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  std::map<std::string, size_t> found;

 private:
  struct Container {
    std::string pointer;
    bool is_array;
    size_t size = 0;
  };

  bool value() {
    if (!open_.empty() && open_.back().is_array)
      at_ = member_pointer(open_.back().pointer, std::to_string(open_.back().size++));
    found.emplace(at_, line_);  // a member has the line of its key already
    return true;
  }
  bool begin(bool is_array) {
    value();
    open_.push_back({at_, is_array});
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  const size_t& line_;
  std::string at_;  // the value that is being read
  std::vector<Container> open_;
};

}  // namespace

std::string member_pointer(const std::string& object, const std::string& key) {
  return (nlohmann::json::json_pointer(object) / key).to_string();
}

std::map<std::string, size_t> json_lines(const std::string& text) {
  size_t line = 1;
  Lines lines(line);
  const char* begin = text.data();
  nlohmann::json::sax_parse(CountingIterator(begin, &line), CountingIterator(begin + text.size(), &line),
                            &lines);
  return std::move(lines.found);
}

}  // namespace r2bench
