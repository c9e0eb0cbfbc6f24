// SPDX-License-Identifier: Apache-2.0
// AllGather and ReduceScatter as CollNet asks for them: a window of all ranks' data at a time, of which each
// rank has a share of its own length, or none. The engine's calls have equal shares, so windows other than
// the whole go through padded buffers of ours: right, and slower than the ring (a window within one rank's
// data makes everybody send as much). Used by the progress thread alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "r2ccl/collective/host/engine.h"

namespace r2ccl::plugin {

/// The part [offset, offset + bytes) of `ranks` times `bytes_per_rank`.
struct Window {
  size_t bytes_per_rank = 0, offset = 0, bytes = 0;
  int ranks = 0;

  size_t begin(int rank) const;  ///< of its share, within the window
  size_t share(int rank) const;  ///< bytes of the rank's data that the window holds
  size_t largest_share() const;
  bool whole() const { return offset == 0 && bytes == bytes_per_rank * static_cast<size_t>(ranks); }
  /// Does it lie within the data, and do `part_bytes` make it up?
  bool valid(size_t part_bytes) const;
};

/// A piece of a buffer, as NCCL hands it over.
struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
};

class Windows;

/// One windowed operation with its buffers; they are kept and used again.
struct WindowOperation {
  Windows* owner = nullptr;
  collective::Operation* operation = nullptr;
  size_t bytes_each = 0;  ///< of each rank, padded
  std::unique_ptr<std::byte[]> sent, received;
  size_t sent_room = 0, received_room = 0;
  Registration *sent_registration = nullptr, *received_registration = nullptr;

  Window window;
  bool gathers = false;
  std::vector<Piece> pieces;  ///< gather: where the window goes
  void* result = nullptr;     ///< scatter: where this rank's share goes
};

class Windows {
 public:
  Windows(collective::Engine& engine, collective::Group* group, int rank)
      : engine_(engine), group_(group), rank_(rank) {}
  ~Windows();

  /// nullptr: not now, call again. `sent` holds this rank's share; `pieces` together the window.
  Result<WindowOperation*> gather(const void* sent, std::span<const Piece> pieces, const Window& window);
  Result<WindowOperation*> scatter(std::span<const Piece> pieces, void* received, const Window& window,
                                   collective::DataType type, collective::Reduction reduction);
  /// The operation is gone once `done` is reported.
  static Result<TestOutcome> test(WindowOperation* operation);

 private:
  Result<WindowOperation*> take(size_t sent_bytes, size_t received_bytes);
  Result<WindowOperation*> begun(WindowOperation* taken, Result<collective::Operation*> operation);

  collective::Engine& engine_;
  collective::Group* group_;
  int rank_;
  std::vector<std::unique_ptr<WindowOperation>> all_;
  std::vector<WindowOperation*> free_;
};

}  // namespace r2ccl::plugin
