// SPDX-License-Identifier: Apache-2.0
// Reads instances from standard input and prints least_time() of each, one a line: for the test that solves
// the same with a linear program. An instance is one line of numbers:
//   far_cost  sockets  demand of each socket  NICs  capacity and socket of each NIC
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "harness/measure/limits.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    double far_cost = 0;
    size_t sockets = 0, nics = 0;
    in >> far_cost >> sockets;
    std::vector<double> demand(sockets);
    for (double& d : demand) in >> d;
    in >> nics;
    std::vector<double> capacity(nics);
    std::vector<int> socket(nics);
    for (size_t i = 0; i < nics; ++i) in >> capacity[i] >> socket[i];
    if (!in) {
      std::fprintf(stderr, "no instance: %s\n", line.c_str());
      return 1;
    }
    std::printf("%.17g\n", r2bench::least_time(demand, capacity, socket, far_cost));
  }
  return 0;
}
