// SPDX-License-Identifier: Apache-2.0
// r2bench-port-probe: started by `r2bench doctor --cluster` on each host.
#include <iostream>

#include "harness/cluster/port_probe.h"

int main() { return r2bench::serve_port_probe(std::cin, std::cout); }
