// Registered memory on huge pages: the kernel's copy between processes looks up each page, so large ones make
// it half again as fast. Must never change what a program can see of its memory, however it unmaps or forks.
#pragma once

#include <cstddef>

namespace vhca {

// VHCA_HUGE_PAGES=1: always, 0: never. Unless told: for ports without a rate, where the copy is the limit,
// and unless the machine's owner has turned transparent huge pages off.
bool wants_huge_pages(bool port_is_unlimited);

// Moves what the program has filled already of the region to huge pages: whole 2 MiB blocks of private
// anonymous memory that can be written, of which something is there. That costs a copy, once; after half a
// second of CPU time the rest is left as it is. Best effort: no memory, no kernel support, a page that is in
// use: nothing happens.
void use_huge_pages(void* address, std::size_t length);

}  // namespace vhca
