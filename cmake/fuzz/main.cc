// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target where there is no libFuzzer: every file of its corpus, and then mutations of them that a
// seed decides, so that each build with any compiler does the same. When the target crashes, the input is
// written to ./crash-<target>, which the same program takes again as its only argument.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cmake/fuzz/input.h"

namespace {

using Bytes = std::vector<uint8_t>;

// What the signal handler may touch: plain memory only.
const uint8_t* g_input = nullptr;
size_t g_bytes = 0;
char g_crash_file[256];

void keep_input(int signal) {
  const int fd = open(g_crash_file, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  [[maybe_unused]] ssize_t written = fd >= 0 ? write(fd, g_input, g_bytes) : 0;
  static constexpr char kSaid[] = "the input that did it is kept in ";
  written = write(STDERR_FILENO, kSaid, sizeof kSaid - 1);
  written = write(STDERR_FILENO, g_crash_file, std::strlen(g_crash_file));
  written = write(STDERR_FILENO, "\n", 1);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// An exception that leaves the target ends the program here, with the input kept.
void run(const Bytes& input) noexcept {
  g_input = input.data();
  g_bytes = input.size();
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// One step: the usual ones, and pieces of other inputs, which carry a text's words along.
void mutate(Bytes& input, const std::vector<Bytes>& corpus, size_t most, std::mt19937_64& random) {
  const auto below = [&](size_t end) { return size_t(random() % std::max<size_t>(end, 1)); };
  const auto at = [&](size_t place) { return input.begin() + std::ptrdiff_t(place); };
  static constexpr uint8_t kEdges[] = {0,   1,   0x7f, 0x80, 0xff, ' ', '\n', ':', '-',
                                       '[', ']', '{',  '}',  '*',  '&', '"',  '0', '9'};
  switch (below(7)) {
    case 0:
      if (!input.empty()) input[below(input.size())] ^= uint8_t(1u << below(8));
      break;
    case 1:
      if (!input.empty()) input[below(input.size())] = kEdges[below(std::size(kEdges))];
      break;
    case 2:
      input.insert(at(below(input.size() + 1)), uint8_t(random()));
      break;
    case 3:
      if (!input.empty()) {
        const size_t from = below(input.size()), count = 1 + below(std::min<size_t>(16, input.size() - from));
        input.erase(at(from), at(from + count));
      }
      break;
    case 4:
      input.resize(below(input.size() + 1));
      break;
    case 5:
      if (!input.empty()) {  // a piece once more
        const size_t from = below(input.size()), count = 1 + below(std::min<size_t>(32, input.size() - from));
        const Bytes piece(at(from), at(from + count));
        input.insert(at(below(input.size() + 1)), piece.begin(), piece.end());
      }
      break;
    default: {
      const Bytes& other = corpus[below(corpus.size())];
      if (other.empty()) break;
      const size_t from = below(other.size()), count = 1 + below(std::min<size_t>(64, other.size() - from));
      input.insert(at(below(input.size() + 1)), other.begin() + std::ptrdiff_t(from),
                   other.begin() + std::ptrdiff_t(from + count));
    }
  }
  if (input.size() > most) input.resize(most);
}

int usage(const char* program) {
  std::fprintf(stderr, "usage: %s FILE\n       %s CORPUS_FOLDER MUTATIONS [SEED]\n", program, program);
  return 64;
}

}  // namespace

// Under the address sanitizer a finding is to end in SIGABRT, so that its input is kept, too.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() {
  return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

int main(int count, char** words) {
  if (count < 2 || count > 4) return usage(words[0]);
  std::snprintf(g_crash_file, sizeof g_crash_file, "crash-%s",
                std::filesystem::path(words[0]).filename().c_str());
  for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(fatal, keep_input);
  try {
    if (count == 2) {
      const Bytes input = read(words[1]);
      run(input);
      return 0;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(words[1])) files.push_back(entry.path());
    std::sort(files.begin(),
              files.end());  // a folder has no order of its own, and a seed must mean the same everywhere
    std::vector<Bytes> corpus;
    size_t longest = 0;
    for (const auto& file : files) {
      corpus.push_back(read(file));
      longest = std::max(longest, corpus.back().size());
      run(corpus.back());
    }
    if (corpus.empty()) {
      std::fprintf(stderr, "%s holds no inputs\n", words[1]);
      return 64;
    }
    const uint64_t mutations = std::stoull(words[2]), seed = count > 3 ? std::stoull(words[3]) : 1;
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < mutations; ++i) {
      Bytes input = corpus[random() % corpus.size()];
      for (uint64_t steps = 1 + random() % 8; steps > 0; --steps)
        mutate(input, corpus, 2 * longest + 64, random);
      run(input);
    }
    std::printf("%zu inputs and %llu mutations of them (seed %llu): nothing wrong\n", corpus.size(),
                static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
    return 0;
  } catch (const std::invalid_argument&) {
    return usage(words[0]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
