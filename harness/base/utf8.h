// SPDX-License-Identifier: Apache-2.0
// Whether a text is UTF-8 (RFC 3629), as JSON must be.
#pragma once

#include <cstddef>
#include <string_view>

namespace r2bench {

/// How many bytes of `text`, from its beginning, are whole characters in UTF-8; its size if all are.
size_t valid_utf8(std::string_view text);

}  // namespace r2bench
