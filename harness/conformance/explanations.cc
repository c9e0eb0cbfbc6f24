// Why a fabric differs, for each deviation that is known. One that is not acceptable stays in the table as
// such.
#include "harness/conformance/table.h"

namespace r2bench::conformance {

const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> all = {
      {"vhca", "transfer.send_with_invalidate", "outcome", true,
       "there are no memory windows and no keys that a peer may take away; the device does not announce the "
       "operation"},
      {"vhca", "limits.memory_regions", "memory that is not mapped", true,
       "memory is not pinned, so a registration looks at no page; what uses the region fails with "
       "LOC_PROT_ERR or REM_ACCESS_ERR"},
      {"rxe", "states.flush_by_modify", "a receive posted in ERR", true,
       "the provider's receive queue is memory shared with the kernel and rings no bell; the next move to "
       "ERR flushes it"},
  };
  return all;
}

}  // namespace r2bench::conformance
