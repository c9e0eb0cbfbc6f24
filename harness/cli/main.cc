// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/commands.h"
#include "harness/cli/console.h"

int main(int argc, char** argv) {
  r2bench::own_standard_streams();
  return r2bench::plain_main(argc, argv, r2bench::run_scenario, r2bench::Console::standard());
}
