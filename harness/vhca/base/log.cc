// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace vhca {

void log_line(const char* format, ...) {
  char text[1024] = "vhca: ";
  const std::size_t prefix = std::strlen(text);
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text + prefix, sizeof text - prefix - 1, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const std::size_t end = std::min(sizeof text - 2, prefix + static_cast<std::size_t>(length));
  text[end] = '\n';
  // One write: lines of several processes do not mix.
  if (::write(STDERR_FILENO, text, end + 1) < 0) return;
}

}  // namespace vhca
