// SPDX-License-Identifier: Apache-2.0
// What the proxy's progress thread drives.
#pragma once

namespace r2bench {

class Polled {
 public:
  virtual ~Polled() = default;
  /// Does what can be done now. Returns whether anything moved. Throws ChannelError.
  virtual bool progress() = 0;
  /// Of the open operation.
  virtual bool finished() const = 0;
  /// The plugin computes while it is polled, in steps however short, and moves nothing by them: a pause
  /// between two polls would be one between two steps.
  virtual bool computes() const { return false; }
};

}  // namespace r2bench
