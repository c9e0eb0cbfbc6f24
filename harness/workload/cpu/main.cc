// r2bench-cpu-rank: one rank of the cpu workload. Started by r2bench, which names the control connection in
// R2BENCH_CONTROL ("fd:N" or "tcp:PORT:TOKEN"); there is no other way to use it.
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "harness/workload/cpu/rank.h"
#include "r2ccl/trace/ring.h"

namespace {

int control_socket(const std::string& where, std::string& token) {
  if (where.rfind("fd:", 0) == 0) return std::atoi(where.c_str() + 3);
  const size_t colon = where.find(':', 4);
  if (where.rfind("tcp:", 0) != 0 || colon == std::string::npos) return -1;
  token = where.substr(colon + 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(std::atoi(where.c_str() + 4)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  return -1;
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
// A rank that failed leaves without joining the plugin's, or its own, threads: they may hang.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main() {
  const char* where = std::getenv("R2BENCH_CONTROL");
  std::string token;
  const int fd = where ? control_socket(where, token) : -1;
  if (fd < 0) {
    fprintf(stderr, "r2bench-cpu-rank is started by r2bench; R2BENCH_CONTROL is '%s'\n",
            where ? where : "not set");
    return 64;
  }
  signal(SIGPIPE, SIG_IGN);
  if (r2bench::captures_operations_only()) {
    r2ccl::trace::Writer::instance();  // the workload's own, open from now on; the plugin finds no ring
    unsetenv("R2CC_TRACE");
  }
  r2bench::MessageSocket socket(fd);
  if (!token.empty()) socket.send({{"type", "token"}, {"token", token}});
  r2bench::Rank rank(std::move(socket));
  return rank.run();
}
