// SPDX-License-Identifier: Apache-2.0
// How a descriptor ends whose device the kernel has taken away: it polls as POLLERR, and as nothing else, for
// ever.
#pragma once

namespace faultinject {

// Does reading from it return at once?
bool readable(int fd);

// From now on `fd` has ended: under the same number, and in every epoll set of this process in which it is.
// Who sleeps in epoll_wait() on such a set wakes; who sleeps in poll() or read() on what `fd` was sleeps on.
// False: the process is out of descriptors, and nothing is done.
bool end_descriptor(int fd);

}  // namespace faultinject
