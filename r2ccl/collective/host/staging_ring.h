// SPDX-License-Identifier: Apache-2.0
// Where messages lie from their arrival until they have been added: contiguous pieces of a ring of bytes, taken
// and given back in the same order. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace r2ccl::collective {

class StagingRing {
 public:
  static constexpr size_t kAlign = 128;  ///< where the core cuts messages into segments

  explicit StagingRing(size_t bytes = 0) : bytes_(bytes / kAlign * kAlign) {}
  size_t bytes() const { return bytes_; }

  struct Piece {
    size_t offset = 0;
    uint64_t end = 0;  ///< for free_up_to()
  };
  /// Nothing: no room now.
  std::optional<Piece> take(size_t bytes) {
    const size_t wanted = (bytes + kAlign - 1) / kAlign * kAlign;
    if (wanted > bytes_) return {};
    if (taken_ == freed_) taken_ = freed_ = 0;
    uint64_t at = taken_;
    if (at % bytes_ + wanted > bytes_) at += bytes_ - at % bytes_;  // it would not be contiguous
    if (at + wanted - freed_ > bytes_) return {};
    taken_ = at + wanted;
    return Piece{size_t(at % bytes_), taken_};
  }
  /// Pieces up to this one, the oldest first.
  void free_up_to(const Piece& piece) { freed_ = piece.end; }

 private:
  size_t bytes_;
  uint64_t taken_ = 0, freed_ = 0;  // rise; the place is the remainder
};

}  // namespace r2ccl::collective
