// SPDX-License-Identifier: Apache-2.0
// A QEMU guest for one job: it boots from what make_guest.py made, sees the host's root read-only and a few
// folders for writing, runs one command, and ends. It has no file, socket or process outside: everything that
// it is given is a memfd or a pipe of this process, and the kernel kills it when the thread that started it
// dies.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace r2bench {

struct GuestJob {
  std::string image;                 ///< the folder that make_guest.py printed
  std::vector<std::string> command;  ///< command[0] is a path, or a name that the guest's PATH knows
  std::map<std::string, std::string>
      environment;                    ///< all of it but PATH, HOME and TMPDIR, which the guest sets
  std::string folder;                 ///< where the command starts; absolute
  std::vector<std::string> writable;  ///< absolute folders, which exist; all others are read-only there
  std::map<std::string, std::string> hosts;  ///< names that the command finds besides the host's, by address
  int cores = 2;
  int memory_mib = 2048;
};

/// Runs it and waits for its end; never longer than 20 s after `cancel` became true: the command then gets a
/// Ctrl-C, and the guest is killed when that did not end it. `output` gets what the command printed, as it
/// comes, on this thread. Returns the command's exit status, 128 + signal when one ended it. Throws
/// FabricError when there is no qemu-system-x86_64, or the guest could not run the command: the text has its
/// console's last lines.
int run_in_guest(const GuestJob& job, const std::function<void(std::string_view)>& output,
                 const std::atomic<bool>& cancel);

/// The same for two guests that a virtual Ethernet joins: each has the other at the far end of its `eth0`,
/// and nothing else. Both commands start when both guests have booted. `output` says which one printed. When
/// one has failed, the other has two more minutes of its own. Returns their exit statuses.
std::array<int, 2> run_in_two_guests(const std::array<GuestJob, 2>& jobs,
                                     const std::function<void(size_t guest, std::string_view)>& output,
                                     const std::atomic<bool>& cancel);

/// The path of qemu-system-x86_64; empty when it is not installed.
std::string find_qemu();

/// The variable that is set to 1 in the guest. Set it by hand on a machine whose routing rules may be
/// changed, and the rxe fabric makes its devices right there.
inline constexpr const char* kRxeHereVariable = "R2BENCH_RXE_HERE";

/// The script that the job's environment, folders and command make for the guest's init (exposed for its
/// test).
std::string guest_script(const GuestJob& job);

}  // namespace r2bench
