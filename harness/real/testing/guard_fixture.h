// SPDX-License-Identifier: Apache-2.0
// What the tests of the guard share: changes that are files, and a process that can open nothing.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "harness/real/change.h"
#include "harness/real/guard_link.h"

namespace r2bench {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// Of a guard whose limit is not what a test is about: a busy machine may need seconds to start a shell.
inline constexpr auto kAmple = 60s;

/// For as long as it exists, process `pid` (0: this one) can open nothing.
class NoFreeDescriptor {
 public:
  explicit NoFreeDescriptor(pid_t pid) : pid_(pid) {
    prlimit(pid_, RLIMIT_NOFILE, nullptr, &before_);
    const rlimit none{1, before_.rlim_max};  // poll() refuses more entries than the limit
    prlimit(pid_, RLIMIT_NOFILE, &none, nullptr);
  }
  ~NoFreeDescriptor() { prlimit(pid_, RLIMIT_NOFILE, &before_, nullptr); }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;

 private:
  pid_t pid_;
  rlimit before_{};
};

class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/real_guard_XXXXXX";
    folder = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder); }

  Change file(const std::string& name) const {
    const std::string path = (folder / name).string();
    Change change;
    change.where = name;
    change.apply = {"touch " + path};
    change.undo = {"rm " + path, "echo " + name + " >>" + (folder / "order").string()};
    change.cut = {Probe::Kind::kPathThere, path, ""};
    change.back = {Probe::Kind::kPathGone, path, ""};
    return change;
  }
  std::string lists() const { return (folder / "undo").string(); }
  bool there(const std::string& name) const { return fs::exists(folder / name); }
  std::string order() const {
    std::ifstream stream(folder / "order");
    std::string all;
    for (std::string word; stream >> word;) all += word + " ";
    return all;
  }
  static GuardAnswer wait_for(GuardLink& link) {
    for (;;) {
      const auto answers = link.answers();
      if (!answers.empty()) return answers.front();
      if (link.lost()) return {};
      std::this_thread::sleep_for(1ms);
    }
  }
  template <typename Condition>
  static bool within(std::chrono::seconds limit, Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }

  fs::path folder;
};

}  // namespace r2bench
