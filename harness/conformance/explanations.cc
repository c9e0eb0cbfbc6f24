// Why a fabric differs, for each deviation that is known. One that is not acceptable stays in the table as such.
#include "harness/conformance/table.h"

namespace r2bench::conformance {

const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> all = {
      {"rxe", "states.flush_by_modify", "a receive posted in ERR", true,
       "the provider's receive queue is memory shared with the kernel and rings no bell; the next move to ERR flushes it"},
  };
  return all;
}

}  // namespace r2bench::conformance
