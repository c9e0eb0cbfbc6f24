// SPDX-License-Identifier: Apache-2.0
#include "harness/base/format.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace r2bench {

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string utc(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string utc_now() { return utc(std::time(nullptr)); }

std::string short_number(double value) {
  const double size = std::fabs(value);
  if (size >= 99.95 || size == 0) return fixed(value, 0);
  if (size >= 9.995) return fixed(value, 1);
  if (size >= 0.9995) return fixed(value, 2);
  return fixed(value, 3);
}

std::string milliseconds(double value) {
  return std::fabs(value) >= 10'000 ? short_number(value / 1000) + " s" : short_number(value) + " ms";
}

size_t width(const std::string& text) {
  size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

std::string left(const std::string& text, size_t columns) {
  const size_t used = width(text);
  return used >= columns ? text : text + std::string(columns - used, ' ');
}

std::string right(const std::string& text, size_t columns) {
  const size_t used = width(text);
  return used >= columns ? text : std::string(columns - used, ' ') + text;
}

std::string cut(const std::string& text, size_t columns) {
  if (width(text) <= columns) return text;
  if (columns == 0) return "";
  size_t end = 0;
  for (size_t points = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) continue;
    if (points++ == columns - 1) break;
  }
  return text.substr(0, end) + "…";
}

std::string wrap(const std::string& text, size_t columns, size_t indent) {
  std::istringstream words(text);
  std::string result;
  size_t used = 0;
  for (std::string word; words >> word;) {
    const size_t size = width(word);
    if (used > 0 && used + 1 + size > columns) {
      result += "\n" + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      result += ' ';
      ++used;
    }
    result += word;
    used += size;
  }
  return result;
}

}  // namespace r2bench
