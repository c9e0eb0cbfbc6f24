// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/collnet_windows.h"

#include <algorithm>
#include <cstring>

namespace r2ccl::plugin {
namespace {

/// Copies between the window's bytes, scattered over `pieces`, and `flat`, which stands for [at, at + bytes)
/// of the window.
template <bool kToPieces>
void copy(std::span<const Piece> pieces, size_t at, size_t bytes, std::byte* flat) {
  size_t begin = 0;
  for (const Piece& piece : pieces) {
    const size_t from = std::max(at, begin), to = std::min(at + bytes, begin + piece.bytes);
    if (from < to) {
      std::byte* const in_piece = static_cast<std::byte*>(piece.data) + (from - begin);
      std::byte* const in_flat = flat + (from - at);
      if constexpr (kToPieces)
        std::memcpy(in_piece, in_flat, to - from);
      else
        std::memcpy(in_flat, in_piece, to - from);
    }
    begin += piece.bytes;
  }
}

}  // namespace

size_t Window::begin(int rank) const {
  const size_t first = static_cast<size_t>(rank) * bytes_per_rank;
  return std::min(bytes, first > offset ? first - offset : 0);
}

size_t Window::share(int rank) const {
  const size_t first = static_cast<size_t>(rank) * bytes_per_rank;
  const size_t from = std::max(first, offset), to = std::min(first + bytes_per_rank, offset + bytes);
  return to > from ? to - from : 0;
}

size_t Window::largest_share() const {
  size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, share(rank));
  return most;
}

bool Window::valid(size_t part_bytes) const {
  const size_t all = bytes_per_rank * static_cast<size_t>(ranks);
  return part_bytes == bytes && offset <= all && bytes <= all - offset;
}

Windows::~Windows() {
  for (const auto& operation : all_) {
    if (operation->sent_registration) (void)engine_.dereg(group_, operation->sent_registration);
    if (operation->received_registration) (void)engine_.dereg(group_, operation->received_registration);
  }
}

Result<WindowOperation*> Windows::take(size_t sent_bytes, size_t received_bytes) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<WindowOperation>());
    all_.back()->owner = this;
    free_.push_back(all_.back().get());
  }
  WindowOperation* const taken = free_.back();
  const auto grow = [&](std::unique_ptr<std::byte[]>& memory, size_t& room, Registration*& registration,
                        size_t bytes) -> Result<void> {
    if (bytes <= room) return {};
    if (registration) {
      if (auto given_back = engine_.dereg(group_, registration); !given_back) return given_back;
      registration = nullptr;
    }
    memory = std::make_unique<std::byte[]>(bytes);
    room = bytes;
    auto made = engine_.reg(group_, memory.get(), bytes);
    if (!made) {
      room = 0;
      return made.error();
    }
    registration = made.value();
    return {};
  };
  if (auto grown = grow(taken->sent, taken->sent_room, taken->sent_registration, sent_bytes); !grown)
    return grown.error();
  if (auto grown = grow(taken->received, taken->received_room, taken->received_registration, received_bytes);
      !grown)
    return grown.error();
  free_.pop_back();
  return taken;
}

Result<WindowOperation*> Windows::begun(WindowOperation* taken, Result<collective::Operation*> operation) {
  if (operation && operation.value()) {
    taken->operation = operation.value();
    return taken;
  }
  free_.push_back(taken);
  if (!operation) return operation.error();
  return static_cast<WindowOperation*>(nullptr);
}

Result<WindowOperation*> Windows::gather(const void* sent, std::span<const Piece> pieces,
                                         const Window& window) {
  const size_t each = window.largest_share(), ranks = static_cast<size_t>(window.ranks);
  auto taken = take(each, each * ranks);
  if (!taken) return taken;
  WindowOperation& use = *taken.value();
  use.window = window;
  use.gathers = true;
  use.bytes_each = each;
  use.pieces.assign(pieces.begin(), pieces.end());
  std::memcpy(use.sent.get(), sent, window.share(rank_));
  return begun(taken.value(), engine_.all_gather(group_, use.sent.get(), use.received.get(), each,
                                                 collective::DataType::kUint8, use.sent_registration,
                                                 use.received_registration));
}

Result<WindowOperation*> Windows::scatter(std::span<const Piece> pieces, void* received, const Window& window,
                                          collective::DataType type, collective::Reduction reduction) {
  const size_t each = window.largest_share(), ranks = static_cast<size_t>(window.ranks);
  auto taken = take(each * ranks, each);
  if (!taken) return taken;
  WindowOperation& use = *taken.value();
  use.window = window;
  use.gathers = false;
  use.bytes_each = each;
  use.result = received;
  for (int rank = 0; rank < window.ranks; ++rank) {
    copy<false>(pieces, window.begin(rank), window.share(rank),
                use.sent.get() + static_cast<size_t>(rank) * each);
  }
  return begun(taken.value(), engine_.reduce_scatter(group_, use.sent.get(), use.received.get(),
                                                     each / collective::bytes_of(type), type, reduction,
                                                     use.sent_registration, use.received_registration));
}

Result<TestOutcome> Windows::test(WindowOperation* use) {
  Windows& owner = *use->owner;
  auto outcome = owner.engine_.test(use->operation);
  if (!outcome || !outcome->done) return outcome;
  const Window& window = use->window;
  if (use->gathers) {
    for (int rank = 0; rank < window.ranks; ++rank) {
      copy<true>(use->pieces, window.begin(rank), window.share(rank),
                 use->received.get() + static_cast<size_t>(rank) * use->bytes_each);
    }
  } else {
    std::memcpy(use->result, use->received.get(), window.share(owner.rank_));
  }
  outcome->bytes = use->gathers ? window.bytes : window.share(owner.rank_);
  owner.free_.push_back(use);
  return outcome;
}

}  // namespace r2ccl::plugin
