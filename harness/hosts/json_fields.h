// SPDX-License-Identifier: Apache-2.0
// Plain structs as JSON and back, from one list of their fields: describe(visitor, struct) calls the visitor
// with the name of each field and the field. A field that is missing keeps its default.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace r2bench {

struct FieldWriter {
  nlohmann::json json = nlohmann::json::object();
  template <typename T>
  void operator()(const char* name, T& field) {
    json[name] = value(field);
  }
  template <typename T>
  static nlohmann::json value(T& field) {
    if constexpr (std::is_enum_v<T>) {
      return int64_t(field);
    } else if constexpr (requires { describe(std::declval<FieldWriter&>(), field); }) {
      FieldWriter inner;
      describe(inner, field);
      return inner.json;
    } else {
      return field;
    }
  }
  template <typename Rep, typename Period>
  static nlohmann::json value(std::chrono::duration<Rep, Period>& field) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(field).count();
  }
  template <typename T>
  static nlohmann::json value(std::optional<T>& field) {
    return field ? value(*field) : nlohmann::json(nullptr);
  }
  template <typename T>
  static nlohmann::json value(std::vector<T>& field) {
    nlohmann::json list = nlohmann::json::array();
    for (T& each : field) list.push_back(value(each));
    return list;
  }
};

struct FieldReader {
  const nlohmann::json& json;
  template <typename T>
  void operator()(const char* name, T& field) {
    if (const auto found = json.find(name); found != json.end()) read(*found, field);
  }
  template <typename T>
  static void read(const nlohmann::json& from, T& field) {
    if constexpr (std::is_enum_v<T>) {
      field = T(from.get<int64_t>());
    } else if constexpr (requires(FieldReader & reader) { describe(reader, field); }) {
      FieldReader inner{from};
      describe(inner, field);
    } else {
      field = from.get<T>();
    }
  }
  static void read(const nlohmann::json& from, nlohmann::json& field) { field = from; }
  template <typename Rep, typename Period>
  static void read(const nlohmann::json& from, std::chrono::duration<Rep, Period>& field) {
    field = std::chrono::duration_cast<std::chrono::duration<Rep, Period>>(
        std::chrono::nanoseconds(from.get<int64_t>()));
  }
  template <typename T>
  static void read(const nlohmann::json& from, std::optional<T>& field) {
    field.reset();
    if (!from.is_null()) read(from, field.emplace());
  }
  template <typename T>
  static void read(const nlohmann::json& from, std::vector<T>& field) {
    field.clear();
    for (const nlohmann::json& each : from) read(each, field.emplace_back());
  }
};

template <typename T>
nlohmann::json fields_to_json(const T& value) {
  FieldWriter writer;
  describe(writer, const_cast<T&>(value));  // the writer changes nothing
  return writer.json;
}

/// Throws nlohmann::json::exception where a field is of another type.
template <typename T>
T fields_from_json(const nlohmann::json& json) {
  T value;
  FieldReader reader{json};
  describe(reader, value);
  return value;
}

}  // namespace r2bench
