// SPDX-License-Identifier: Apache-2.0
// r2bench-real-guard FD FOLDER LIST: started by r2bench before a real fault is made, and outlives it for as long as
// something is to be put back.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/real/guard.h"

int main(int argc, char** argv) {
  if (argc != 4 || std::string(argv[1]).find_first_not_of("0123456789") != std::string::npos) {
    fprintf(stderr, "r2bench-real-guard is started by r2bench and serves the descriptor that it names\n");
    return 64;
  }
  return r2bench::guard_main(atoi(argv[1]), argv[2], argv[3]);
}
