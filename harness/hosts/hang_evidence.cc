// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/hang_evidence.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace r2bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Paths of what is in a folder of /proc; what vanishes meanwhile ends the list, and is no error.
std::vector<std::filesystem::path> entries_of(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code gone;
  std::filesystem::directory_iterator entry(folder, gone);
  for (; !gone && entry != std::filesystem::directory_iterator(); entry.increment(gone))
    paths.push_back(entry->path());
  return paths;
}

std::vector<std::string> tasks_of(pid_t pid) {
  std::vector<std::string> tasks;
  for (const auto& path : entries_of("/proc/" + std::to_string(pid) + "/task")) tasks.push_back(path);
  return tasks;
}

/// The fields of /proc/…/stat after the name, which may hold blanks: [0] is the state.
std::vector<std::string> stat_of(const std::string& task) {
  const std::string line = first_line(task + "/stat");
  const size_t name_end = line.rfind(')');
  std::istringstream rest(name_end == std::string::npos ? "" : line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

/// The number behind "NAME:" in /proc/…/status.
long status_number(const std::string& task, const std::string& name) {
  std::ifstream file(task + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name + ":", 0) == 0) return std::atol(line.c_str() + name.size() + 1);
  return 0;
}

struct Doings {
  long user_ticks = 0, system_ticks = 0, own_will = 0, against_it = 0;
};

Doings doings_of(const std::string& task) {
  Doings doings;
  const std::vector<std::string> fields = stat_of(task);
  if (fields.size() > 12) {
    doings.user_ticks = std::atol(fields[11].c_str());
    doings.system_ticks = std::atol(fields[12].c_str());
  }
  doings.own_will = status_number(task, "voluntary_ctxt_switches");
  doings.against_it = status_number(task, "nonvoluntary_ctxt_switches");
  return doings;
}

void write_thread(std::ostream& out, const std::string& task, const Doings& before,
                  std::chrono::milliseconds apart) {
  const std::vector<std::string> fields = stat_of(task);
  if (fields.size() < 39) return;
  const Doings now = doings_of(task);
  const long tick_ms = 1000 / sysconf(_SC_CLK_TCK);
  out << "  " << std::filesystem::path(task).filename().string() << ' ' << first_line(task + "/comm")
      << ": state " << fields[0] << ", nice " << fields[16] << ", policy " << fields[38] << ", waits in "
      << first_line(task + "/wchan") << ", syscall " << first_line(task + "/syscall") << "\n    in "
      << apart.count() << " ms: user " << (now.user_ticks - before.user_ticks) * tick_ms << " ms, system "
      << (now.system_ticks - before.system_ticks) * tick_ms << " ms, switches "
      << now.own_will - before.own_will << " by its own will, " << now.against_it - before.against_it
      << " against it\n";
  std::ifstream stack(task + "/stack");
  for (std::string line; std::getline(stack, line);) out << "    " << line << '\n';
}

std::vector<pid_t> processes() {
  std::vector<pid_t> pids;
  for (const auto& path : entries_of("/proc"))
    if (const pid_t pid = std::atoi(path.filename().c_str()); pid > 0) pids.push_back(pid);
  return pids;
}

}  // namespace

std::string threads_in_brief(pid_t pid) {
  const std::vector<std::string> tasks = tasks_of(pid);
  if (tasks.empty()) return " (gone)";
  std::ostringstream text;
  for (const std::string& task : tasks) {
    const std::vector<std::string> fields = stat_of(task);
    const std::string waits = first_line(task + "/wchan");
    text << ' ' << first_line(task + "/comm") << ' ' << (fields.empty() ? "?" : fields[0]);
    if (!waits.empty() && waits != "0") text << ':' << waits;
  }
  return text.str();
}

void write_threads_in_full(std::ostream& out, const std::vector<Suspect>& suspects,
                           std::chrono::milliseconds apart) {
  std::map<std::string, Doings> before;
  for (const pid_t pid : processes())
    for (const std::string& task : tasks_of(pid)) before[task] = doings_of(task);
  std::this_thread::sleep_for(apart);
  for (const Suspect& suspect : suspects) {
    out << suspect.label << ", pid " << suspect.pid << '\n';
    for (const std::string& task : tasks_of(suspect.pid)) write_thread(out, task, before[task], apart);
  }
  out << "other processes that are runnable, or in uninterruptible sleep\n";
  for (const pid_t pid : processes()) {
    const auto is_it = [pid](const Suspect& suspect) { return suspect.pid == pid; };
    if (std::any_of(suspects.begin(), suspects.end(), is_it)) continue;
    for (const std::string& task : tasks_of(pid)) {
      const std::vector<std::string> fields = stat_of(task);
      if (!fields.empty() && (fields[0] == "R" || fields[0] == "D"))
        write_thread(out, task, before[task], apart);
    }
  }
}

}  // namespace r2bench
