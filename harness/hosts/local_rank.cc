// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/local_rank.h"

#include "r2ccl/base/clock.h"

namespace r2bench {

bool LocalRank::connect(Bootstrap& bootstrap, size_t index, const nlohmann::json& config) {
  if (socket_.fd() >= 0) return true;
  socket_ = bootstrap.take(index);
  if (socket_.fd() < 0) return false;
  socket_.send(config);
  return true;
}

uint64_t LocalRank::signal(int number) { return process_.signal(number) ? r2ccl::now_ns() : 0; }

}  // namespace r2bench
