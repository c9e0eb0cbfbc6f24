// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/testing/fake_engine.h"

namespace r2ccl::collective {

FakeEngine& FakeEngine::instance() {
  static FakeEngine engine;
  return engine;
}

Result<Engine*> Engine::acquire(Net&) { return static_cast<Engine*>(&FakeEngine::instance()); }

}  // namespace r2ccl::collective
