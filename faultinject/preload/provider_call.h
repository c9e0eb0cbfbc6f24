// SPDX-License-Identifier: Apache-2.0
// A call of ours into the provider while a Context's mutex is held. Some providers ask for the port or the
// device in the middle of a command (mlx4's modify_qp does), by libibverbs' own functions, which are ours:
// they must pass through then, and lock nothing.
#pragma once

namespace faultinject {

class ProviderCall {
 public:
  ProviderCall() : before_(inside_) { inside_ = true; }
  ProviderCall(const ProviderCall&) = delete;
  ~ProviderCall() { inside_ = before_; }

  // Is this thread inside one?
  static bool is_under_way() { return inside_; }

 private:
  static inline thread_local bool inside_ = false;
  const bool before_;
};

}  // namespace faultinject
