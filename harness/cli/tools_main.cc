// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/commands.h"

int main(int argc, char** argv) {
  return r2bench::r2bench_main(argc, argv, r2bench::run_scenario, r2bench::Console::standard());
}
