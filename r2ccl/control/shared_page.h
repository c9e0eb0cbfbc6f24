// SPDX-License-Identifier: Apache-2.0
// Memory that the processes of one user on one machine share without a name in any file system: one of them
// listens on an abstract socket and hands the others a descriptor of it. When that one ends, however it ends,
// another takes its place; when all have ended, nothing is left.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/control/socket.h"

namespace r2ccl::control {

/// One process's view of it. Service thread only; nothing blocks. Processes in other network namespaces or of
/// other users are not met. Whatever is in it may have been written by any of them at any time.
class SharedPage {
 public:
  /// Memory of its own, zeroed, which becomes everybody's, or is exchanged for everybody's, by tend().
  /// `name`: who gives the same shares. Errors: kSystem, when the kernel refuses memory.
  static Result<SharedPage> make(const std::string& name, size_t bytes);

  SharedPage(SharedPage&&) noexcept;
  SharedPage& operator=(SharedPage&&) noexcept;
  ~SharedPage();

  /// To be called now and then: lets others in, and finds company. True: memory() is other memory now.
  bool tend();
  void* memory() const { return memory_; }
  /// Is it, as far as is known, the memory that all others have?
  bool joined() const { return serving_ || joined_; }

 private:
  SharedPage() = default;
  bool listen();
  void let_in();
  void visit();
  bool receive();
  bool map(Descriptor fd);

  std::string name_;
  size_t bytes_ = 0;
  Descriptor file_;
  void* memory_ = nullptr;
  bool serving_ = false, joined_ = false;
  Stream socket_;               // serving: it listens; else: the connection to who serves
  std::vector<Stream> guests_;  // they notice our end by these
};

}  // namespace r2ccl::control
