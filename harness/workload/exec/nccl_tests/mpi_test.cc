// SPDX-License-Identifier: Apache-2.0
// The mpi.h for nccl-tests: what each of three processes gets from the calls that nccl-tests makes.
#include "harness/workload/exec/nccl_tests/mpi.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>

namespace {

constexpr int kRanks = 3;

#define WANT(condition) \
  if (!(condition)) return __LINE__ % 250 + 1

/// Which line was not so; 0: all were.
int one_rank(int rank) {
  int ranks = 0, own = -1;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  WANT(ranks == kRanks && own == rank);
  std::vector<uint64_t> hashes(kRanks);
  hashes[size_t(rank)] = 100u + unsigned(rank);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hashes.data(), sizeof(uint64_t), MPI_BYTE,
                MPI_COMM_WORLD);
  WANT((hashes == std::vector<uint64_t>{100, 101, 102}));
  char id[128] = "";
  if (rank == 0) std::strcpy(id, "an id");
  MPI_Bcast(id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
  WANT(std::strcmp(id, "an id") == 0);
  for (int round = 0; round < 100; ++round) {
    double value = 0.5 + rank;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    WANT(value == 4.5);
  }
  int least = 7 - rank;
  MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  WANT(least == 5);
  int64_t most = -3 - rank;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  WANT(most == -3);
  const double times[2] = {1.0 * rank, 2.0 * rank};
  double all[2 * kRanks] = {};
  MPI_Gather(times, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  WANT(rank != 0 || (all[3] == 2 && all[4] == 2 && all[5] == 4));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}

TEST(NcclTestsMpi, collectives_agree_between_processes_and_leave_nothing_behind) {
  const std::string folder = testing::TempDir() + "mpi_test_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    setenv("TMPDIR", folder.c_str(), 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    setenv("MASTER_PORT", "4711", 1);
    _exit(one_rank(rank));
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status) - 1 << " (modulo 250)";
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
