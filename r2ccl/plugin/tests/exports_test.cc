// The built library as NCCL's loader sees it: which names it has, and what closing it does.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "r2ccl/plugin/tests/any_version.h"

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

TEST(PluginLibrary, exports_the_five_versions_and_nothing_else) {
  EXPECT_EQ(exported_names(), (std::set<std::string>{Version8::kSymbol, Version9::kSymbol, Version10::kSymbol,
                                                     Version11::kSymbol, Version12::kSymbol}));
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
