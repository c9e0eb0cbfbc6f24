// SPDX-License-Identifier: Apache-2.0
// What the explorations of single objects have in common: an object of protocol/ is part of a state.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

namespace r2ccl::model {

/// An object with constant members, which can be copied but not assigned.
template <class T>
struct Held {
  T object;
  explicit Held(const T& from) : object(from) {}
  Held(const Held&) = default;
  Held& operator=(const Held& other) {
    if (this == &other) return *this;
    std::destroy_at(&object);
    std::construct_at(&object, other.object);
    return *this;
  }
};

/// The canonical form of a state, put together byte by byte.
class Bytes {
 public:
  explicit Bytes(uint8_t* out) : begin_(out), at_(out) {}
  template <class... T>
  void put(T... values) {
    ((*at_++ = uint8_t(values)), ...);
  }
  void put_time(uint64_t ns) {
    std::memcpy(at_, &ns, sizeof ns);
    at_ += sizeof ns;
  }
  /// All that the object knows, private members too; without the bytes between its members.
  template <class T>
  void put_object(const T& object) {
    static_assert(std::is_trivially_copyable_v<T>);
    alignas(T) uint8_t copy[sizeof(T)];
    std::memcpy(copy, &object, sizeof(T));
#if defined(__GNUC__) && !defined(__clang__)
    __builtin_clear_padding(reinterpret_cast<T*>(copy));
#endif
    std::memcpy(at_, copy, sizeof(T));
    at_ += sizeof(T);
  }
  size_t count() const { return size_t(at_ - begin_); }

 private:
  uint8_t* begin_;
  uint8_t* at_;
};

}  // namespace r2ccl::model
