// SPDX-License-Identifier: Apache-2.0
// As much of MPI as nccl-tests calls, between the copies that the engine exec starts: a build of nccl-tests
// with MPI=1 finds its ranks by RANK and WORLD_SIZE, without mpirun. Collectives go through files of one
// folder of this host, which rank 0 removes at the end; they take milliseconds and are never timed by
// nccl-tests.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using MPI_Comm = int;
enum MPI_Datatype { MPI_DATATYPE_NULL, MPI_BYTE, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_DOUBLE };
enum MPI_Op { MPI_OP_NULL, MPI_SUM, MPI_MIN, MPI_MAX };
constexpr MPI_Comm MPI_COMM_WORLD = 0;
constexpr int MPI_SUCCESS = 0;
inline char mpi_in_place;
#define MPI_IN_PLACE (static_cast<void*>(&mpi_in_place))

namespace mpi_files {

inline int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}
inline int rank() {
  static const int value = number("RANK", 0);
  return value;
}
inline int ranks() {
  static const int value = number("WORLD_SIZE", 1);
  return value;
}
/// One job's own: its port is free on this host.
inline const std::string& folder() {
  static const std::string path = [] {
    const char* base = std::getenv("TMPDIR");
    std::string made = std::string(base ? base : "/tmp") + "/r2bench-mpi-" + std::to_string(getuid()) + "-" +
                       std::to_string(number("MASTER_PORT", 0));
    mkdir(made.c_str(), 0700);
    return made;
  }();
  return path;
}
inline size_t size(MPI_Datatype type) {
  return type == MPI_BYTE ? 1 : type == MPI_INT ? sizeof(int) : type == MPI_DATATYPE_NULL ? 0 : 8;
}

/// Everybody's bytes, by rank. All ranks make the same calls in the same order.
inline std::vector<std::string> exchange(const void* data, size_t bytes) {
  static unsigned calls = 0;
  const std::string call = folder() + "/" + std::to_string(calls++) + ".";
  const std::string own = call + std::to_string(rank()), begun = own + ".begun";
  FILE* file = std::fopen(begun.c_str(), "w");
  if (!file || std::fwrite(data, 1, bytes, file) != bytes || std::fclose(file) != 0 ||
      std::rename(begun.c_str(), own.c_str()) != 0) {
    std::perror(own.c_str());
    std::exit(1);
  }
  std::vector<std::string> all;
  for (int from = 0; from < ranks(); ++from) {
    FILE* in = nullptr;
    while (!(in = std::fopen((call + std::to_string(from)).c_str(), "r"))) usleep(500);
    std::string text;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), in)) > 0;) text.append(buffer, n);
    std::fclose(in);
    all.push_back(std::move(text));
  }
  // Everybody has read what came before the call that everybody has now reached.
  if (calls > 1)
    std::remove((folder() + "/" + std::to_string(calls - 2) + "." + std::to_string(rank())).c_str());
  return all;
}

template <typename T>
void reduce(T* result, const std::vector<std::string>& all, int count, MPI_Op op) {
  for (int k = 0; k < count; ++k) {
    T total{};
    for (size_t r = 0; r < all.size(); ++r) {
      T value;
      std::memcpy(&value, all[r].data() + size_t(k) * sizeof(T), sizeof(T));
      const bool takes = r == 0 || (op == MPI_MIN ? value < total : value > total);
      total = op == MPI_SUM ? T(total + value) : takes ? value : total;
    }
    result[k] = total;
  }
}

}  // namespace mpi_files

inline int MPI_Init(int*, char***) {
  mpi_files::folder();
  return MPI_SUCCESS;
}
inline int MPI_Comm_size(MPI_Comm, int* ranks) {
  *ranks = mpi_files::ranks();
  return MPI_SUCCESS;
}
inline int MPI_Comm_rank(MPI_Comm, int* rank) {
  *rank = mpi_files::rank();
  return MPI_SUCCESS;
}
inline int MPI_Barrier(MPI_Comm) {
  mpi_files::exchange("", 0);
  return MPI_SUCCESS;
}
inline int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm) {
  const size_t bytes = size_t(count) * mpi_files::size(type);
  const auto all = mpi_files::exchange(data, mpi_files::rank() == root ? bytes : 0);
  std::memcpy(data, all[size_t(root)].data(), bytes);
  return MPI_SUCCESS;
}
inline int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  const auto all =
      mpi_files::exchange(from == MPI_IN_PLACE ? to : from, size_t(count) * mpi_files::size(type));
  if (type == MPI_INT)
    mpi_files::reduce(static_cast<int*>(to), all, count, op);
  else if (type == MPI_DOUBLE)
    mpi_files::reduce(static_cast<double*>(to), all, count, op);
  else
    mpi_files::reduce(static_cast<int64_t*>(to), all, count, op);
  return MPI_SUCCESS;
}
inline int MPI_Gather(const void* from, int count, MPI_Datatype type, void* to, int, MPI_Datatype, int root,
                      MPI_Comm) {
  const size_t bytes = size_t(count) * mpi_files::size(type);
  const void* own = from == MPI_IN_PLACE ? static_cast<char*>(to) + size_t(mpi_files::rank()) * bytes : from;
  const auto all = mpi_files::exchange(own, bytes);
  if (mpi_files::rank() == root)
    for (size_t r = 0; r < all.size(); ++r)
      std::memcpy(static_cast<char*>(to) + r * bytes, all[r].data(), bytes);
  return MPI_SUCCESS;
}
/// In place alone, which is how nccl-tests calls it.
inline int MPI_Allgather(const void*, int, MPI_Datatype, void* to, int count, MPI_Datatype type, MPI_Comm) {
  const size_t bytes = size_t(count) * mpi_files::size(type);
  const auto all = mpi_files::exchange(static_cast<char*>(to) + size_t(mpi_files::rank()) * bytes, bytes);
  for (size_t r = 0; r < all.size(); ++r)
    std::memcpy(static_cast<char*>(to) + r * bytes, all[r].data(), bytes);
  return MPI_SUCCESS;
}
/// One colour alone: NCCL_TESTS_SPLIT is not for this.
inline int MPI_Comm_split(MPI_Comm comm, int, int, MPI_Comm* part) {
  *part = comm;
  return MPI_SUCCESS;
}
inline int MPI_Comm_free(MPI_Comm*) { return MPI_SUCCESS; }
inline int MPI_Finalize() {
  mpi_files::exchange("", 0);
  // Everybody is past the last exchange but one; who is still reading the last one has its files open or
  // finds them: only rank 0 removes, once all have said that they are done.
  const std::string done = mpi_files::folder() + "/done." + std::to_string(mpi_files::rank());
  if (FILE* file = std::fopen(done.c_str(), "w")) std::fclose(file);
  if (mpi_files::rank() != 0) return MPI_SUCCESS;
  for (int r = 0; r < mpi_files::ranks(); ++r)
    for (int tries = 0; tries < 10000; ++tries) {
      if (access((mpi_files::folder() + "/done." + std::to_string(r)).c_str(), F_OK) == 0) break;
      usleep(500);
    }
  if (DIR* open = opendir(mpi_files::folder().c_str())) {
    while (const dirent* entry = readdir(open))
      if (entry->d_name[0] != '.') std::remove((mpi_files::folder() + "/" + entry->d_name).c_str());
    closedir(open);
  }
  rmdir(mpi_files::folder().c_str());
  return MPI_SUCCESS;
}
