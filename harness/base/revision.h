// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace r2bench {

/// The commit that this program was built from, with "-dirty" if files had been changed; "unknown" outside a
/// repository.
const char* build_revision();

}  // namespace r2bench
