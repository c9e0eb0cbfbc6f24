// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. Used on the data path and across modules instead of exceptions; nothing
// here allocates unless a message is attached.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace r2ccl {

/// Everything that can go wrong, each with a sentence that tells the user what to do (see advice()).
enum class ErrorCode {
  kOk = 0,
  kInvalidConfig,    ///< an R2CC_* variable has a bad value
  kNoDevice,         ///< no NIC with an active port
  kVerbs,            ///< a libibverbs call failed
  kMemoryLock,       ///< registration failed for lack of locked memory
  kOutOfResources,   ///< the device has no more QPs, CQs or MRs
  kSystem,           ///< a system call failed (sockets, threads)
  kBadHandle,        ///< the connect handle is not one of ours
  kVersionMismatch,  ///< the peer speaks another wire version
  kModeMismatch,     ///< the peer runs another R2CC_MODE
  kAuthentication,   ///< a control message was forged, replayed or truncated
  kNicFailed,        ///< mode 0: the NIC failed, and nothing else was tried
  kAllPathsDown,     ///< no path between the two nodes works
  kPeerGone,         ///< the peer process ended
  kUnfenceable,      ///< a NIC could not be stopped: replaying might corrupt memory
  kDeviceGone,  ///< the device takes no commands any more (EIO): it was removed, or has failed as a whole
  kInvalidArgument,  ///< the caller broke the interface's contract
  kAfterFork,        ///< called in a forked child
};

/// "kNicFailed" -> "NIC failed" etc.
std::string_view name(ErrorCode code);
/// One sentence: what the user should do next.
std::string_view advice(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kOk;
  std::string message;  ///< what was seen, where and when
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  bool ok() const { return error_.code == ErrorCode::kOk; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

}  // namespace r2ccl
