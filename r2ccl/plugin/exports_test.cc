// SPDX-License-Identifier: Apache-2.0
// The built library as NCCL's loader sees it: which names it has, and what closing it does.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "r2ccl/plugin/testing/any_version.h"

namespace r2ccl::plugin_test {
namespace {

std::string library() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
         "lib/libnccl-net-r2ccl.so";
}

std::set<std::string> exported_names() {
  const std::string command = "nm -D --defined-only '" + library() + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::set<std::string> names;
  std::array<char, 512> line;
  while (pipe && std::fgets(line.data(), line.size(), pipe.get())) {
    std::string text(line.data());
    text.erase(text.find_last_not_of('\n') + 1);
    names.insert(text.substr(text.rfind(' ') + 1));
  }
  return names;
}

TEST(PluginLibrary, exports_net_collnet_and_tuner_and_nothing_else) {
  std::set<std::string> wanted;
  for (int version = 8; version <= 12; ++version) {
    wanted.insert("ncclNetPlugin_v" + std::to_string(version));
    wanted.insert("ncclCollNetPlugin_v" + std::to_string(version));
  }
  for (int version = 2; version <= 6; ++version) wanted.insert("ncclTunerPlugin_v" + std::to_string(version));
  EXPECT_EQ(exported_names(), wanted);
}

TEST(PluginLibrary, is_found_by_the_names_that_nccl_asks_for) {
  void* loaded = dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  for (const char* symbol :
       {Version8::kSymbol, Version9::kSymbol, Version10::kSymbol, Version11::kSymbol, Version12::kSymbol}) {
    // All versions begin with the name.
    const auto* name = static_cast<const char* const*>(dlsym(loaded, symbol));
    ASSERT_NE(name, nullptr) << symbol;
    EXPECT_STREQ(*name, "R2CCL") << symbol;
  }
  for (int version = 8; version <= 12; ++version) {
    const std::string symbol = "ncclCollNetPlugin_v" + std::to_string(version);
    const auto* name = static_cast<const char* const*>(dlsym(loaded, symbol.c_str()));
    ASSERT_NE(name, nullptr) << symbol;
    EXPECT_STREQ(*name, "R2CCL") << symbol;
  }
  EXPECT_EQ(dlsym(loaded, "ncclCollNetPlugin_v7"), nullptr);
  EXPECT_EQ(dlsym(loaded, "ncclNetPlugin_v7"), nullptr);
  EXPECT_EQ(dlsym(loaded, "ncclNetPlugin_v13"), nullptr);
  dlclose(loaded);
}

TEST(PluginLibrary, stays_in_memory_when_nccl_closes_it) {
  // NCCL does that with its last communicator; the core's service thread may still be running then.
  void* loaded = dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  ASSERT_EQ(dlclose(loaded), 0);
  void* still_there = dlopen(library().c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(still_there, nullptr);
  if (still_there) dlclose(still_there);
}

}  // namespace
}  // namespace r2ccl::plugin_test
