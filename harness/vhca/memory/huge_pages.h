// SPDX-License-Identifier: Apache-2.0
// Registered memory on huge pages: the kernel's copy between processes looks up each page, so large ones make
// it half again as fast. Must never change what a program can see of its memory, however it unmaps or forks.
#pragma once

#include <cstddef>

namespace vhca {

// VHCA_HUGE_PAGES=1. Only when told, because MADV_COLLAPSE first waits for every core of the machine, with
// the process's mmap lock taken: seconds on a machine with more to do than cores, and no driver is that slow.
bool wants_huge_pages();

// Moves what the program has filled already of the region to huge pages: whole 2 MiB blocks of private
// anonymous memory that can be written, of which something is there. That costs a copy, once; after half a
// second of CPU time the rest is left as it is. Best effort: no memory, no kernel support, a page that is in
// use: nothing happens.
void use_huge_pages(void* address, std::size_t length);

}  // namespace vhca
