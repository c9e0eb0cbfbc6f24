// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/testing/fake_engine.h"

namespace r2ccl::collective {

FakeEngine& FakeEngine::instance() {
  static FakeEngine engine;
  return engine;
}

Result<Engine*> Engine::acquire(Net&) { return static_cast<Engine*>(&FakeEngine::instance()); }

size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

}  // namespace r2ccl::collective
