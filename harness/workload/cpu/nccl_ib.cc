// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/nccl_ib.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace r2bench {
namespace {

constexpr const char* kTable = "ncclNetIb";

/// A file in memory, read only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    void* data = fd >= 0 && fstat(fd, &status) == 0
                     ? mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0)
                     : MAP_FAILED;
    const int error = errno;
    if (fd >= 0) close(fd);
    if (data == MAP_FAILED) throw PluginError(path + " cannot be read: " + std::strerror(error));
    bytes_ = {static_cast<const char*>(data), size_t(status.st_size)};
  }
  ~MappedFile() { munmap(const_cast<char*>(bytes_.data()), bytes_.size()); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// `count` objects at `offset`; empty where the file does not have them.
  template <typename T>
  std::span<const T> at(uint64_t offset, uint64_t count) const {
    if (offset % alignof(T) != 0 || offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T))
      return {};
    return {reinterpret_cast<const T*>(bytes_.data() + offset), size_t(count)};
  }

 private:
  std::span<const char> bytes_;
};

/// The address of an object of this name in the file's symbol table, relative to where it is loaded; 0: there
/// is none.
uint64_t find_object(const MappedFile& file, const char* name) {
  const auto header = file.at<Elf64_Ehdr>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return 0;
  const auto sections = file.at<Elf64_Shdr>(header[0].e_shoff, header[0].e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    const auto names = file.at<char>(strings.sh_offset, strings.sh_size);
    for (const Elf64_Sym& symbol : file.at<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym)))
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_name < names.size() &&
          std::string_view(names.data() + symbol.st_name,
                           strnlen(names.data() + symbol.st_name, names.size() - symbol.st_name)) == name)
        return symbol.st_value;
  }
  return 0;
}

/// Of NCCL's number, the version of the table that it uses itself; 0: none of those that are declared here.
int abi_of(int nccl) {
  // clang-format off
  if (nccl < 22300 || nccl >= 23300) return 0;
  if (nccl < 22400) return 8;
  if (nccl < 22600) return 9;
  if (nccl < 22800) return 10;
  if (nccl < 23000) return 11;
  // clang-format on
  return 12;
}

}  // namespace

std::unique_ptr<NetPlugin> nccl_ib_of(void* library) {
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  const link_map* map = nullptr;
  int version = 0;
  if (!get_version || get_version(&version) != 0 || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
    return nullptr;
  const std::string path = map->l_name;
  const int abi = abi_of(version);
  if (abi == 0) throw PluginError(path + " is NCCL " + std::to_string(version) + "; 2.23 to 2.32 are known");
  const uint64_t table = find_object(MappedFile(path), kTable);
  if (table == 0)
    throw PluginError(path + " has no symbol " + kTable +
                      ": it was stripped; take the library of a wheel from PyPI");
  return net_plugin_of(reinterpret_cast<const void*>(map->l_addr + table), abi);
}

}  // namespace r2bench
