// SPDX-License-Identifier: Apache-2.0
// How the program's look-ups reach us and how we reach past ourselves.
//
// Programs such as NCCL dlopen libibverbs and bind it with dlsym or dlvsym, where a preloaded ibv_open_device
// is never seen. So dlsym and dlvsym are exported too. Both must look to the real ones as if the program had
// called them (RTLD_NEXT means 'after the caller'), so each is a few instructions (lookups.cc) that ask
// find_wrapper() and otherwise *jump* to the real function with the program's return address on the stack.
#include "faultinject/preload/real.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <initializer_list>

namespace faultinject {
namespace {

constexpr unsigned kSymbols = unsigned(Symbol::kCount);
constexpr const char* kNames[kSymbols] = {
    "ibv_open_device",   "ibv_close_device",     "ibv_create_qp",        "ibv_destroy_qp",
    "ibv_modify_qp",     "ibv_query_qp",         "ibv_create_cq",        "ibv_destroy_cq",
    "ibv_query_port",    "ibv_get_async_event",  "ibv_ack_async_event",  "ibv_reg_mr",
    "ibv_reg_mr_iova",   "ibv_reg_mr_iova2",     "ibv_reg_dmabuf_mr",    "ibv_query_gid",
    "_ibv_query_gid_ex", "_ibv_query_gid_table", "ibv_create_ah",        "ibv_create_ah_from_wc",
    "ibv_destroy_ah",    "ibv_query_device",     "ibv_alloc_pd",         "ibv_dealloc_pd",
    "ibv_dereg_mr",      "ibv_create_srq",       "ibv_destroy_srq",      "ibv_create_comp_channel",
    "ibv_destroy_comp_channel", "ibv_get_cq_event", "ibv_resize_cq", "ibv_get_device_list",
    "ibv_free_device_list", "ibv_get_device_name", "ibv_qp_to_qp_ex",    "ibv_init_ah_from_wc",  "ibv_ack_cq_events"};

std::atomic<void*> g_real[kSymbols];
Environment g_environment;

using Dlsym = void* (*)(void*, const char*);
using Dlvsym = void* (*)(void*, const char*, const char*);

size_t gnu_symbol_count(const uint32_t* table) {
  const uint32_t buckets = table[0], first = table[1], bloom = table[2];
  const uint32_t* bucket = table + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

struct Search {
  void* dlsym = nullptr;
  void* dlvsym = nullptr;
};

// A sanitizer's runtime looks symbols up before it is ready to have its interceptors called, so on the way of
// a look-up no function of the C library is called before the program's own start.
bool same(const char* a, const char* b) {
  while (*a != 0 && *a == *b) a++, b++;
  return *a == *b;
}
bool begins(const char* text, const char* with) {
  while (*with != 0)
    if (*text++ != *with++) return false;
  return true;
}

// Reads the C library's own symbol table: no look-up function can be asked for the look-up functions.
void search_object(const link_map& object, Search& search) {
  const char* base = object.l_name;
  for (const char* c = object.l_name; *c != 0; c++)
    if (*c == '/') base = c + 1;
  if (!begins(base, "libc.so") && !begins(base, "libdl.so")) return;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  // The loader has made these absolute, except where it keeps the section read-only.
  const auto address = [&](ElfW(Addr) value) {
    return value < object.l_addr ? value + object.l_addr : value;
  };
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address(entry->d_un.d_ptr));
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(address(entry->d_un.d_ptr));
    if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(address(entry->d_un.d_ptr));
  }
  if (symbols == nullptr || strings == nullptr || gnu_hash == nullptr) return;
  const size_t count = gnu_symbol_count(gnu_hash);
  for (size_t i = 0; i < count; i++) {
    if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC) continue;
    const char* name = strings + symbols[i].st_name;
    void* where = reinterpret_cast<void*>(object.l_addr + symbols[i].st_value);
    if (search.dlsym == nullptr && same(name, "dlsym")) search.dlsym = where;
    if (search.dlvsym == nullptr && same(name, "dlvsym")) search.dlvsym = where;
  }
}

int index_of(const char* name, unsigned end) {
  if (!begins(name, "ibv_") && !begins(name, "_ibv_")) return -1;
  for (unsigned i = 0; i < end; i++)
    if (same(kNames[i], name)) return int(i);
  return -1;
}

void copy(char* to, size_t size, const char* variable) {
  const char* value = getenv(variable);
  if (value != nullptr) strncpy(to, value, size - 1);
}

}  // namespace

extern "C" {
// The real functions; read by the assembly below.
__attribute__((visibility("hidden"))) void* faultinject_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* faultinject_real_dlvsym = nullptr;
}

namespace {

void find_lookups() {
  // Idempotent, so that two threads may do it at once; each pointer is written last and only once set is
  // used.
  if (__atomic_load_n(&faultinject_real_dlvsym, __ATOMIC_ACQUIRE) != nullptr) return;
  Search search;
  for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next)
    search_object(*object, search);
  if (search.dlsym == nullptr || search.dlvsym == nullptr) abort();  // no C library that we know
  __atomic_store_n(&faultinject_real_dlsym, search.dlsym, __ATOMIC_RELEASE);
  __atomic_store_n(&faultinject_real_dlvsym, search.dlvsym, __ATOMIC_RELEASE);
}

void* look_up(void* handle, const char* name, const char* version) {
  find_lookups();
  if (version != nullptr) return reinterpret_cast<Dlvsym>(faultinject_real_dlvsym)(handle, name, version);
  return reinterpret_cast<Dlsym>(faultinject_real_dlsym)(handle, name);
}

void* ours(unsigned index) {
  static void* const wrappers[] = {
      reinterpret_cast<void*>(&ibv_open_device),     reinterpret_cast<void*>(&ibv_close_device),
      reinterpret_cast<void*>(&ibv_create_qp),       reinterpret_cast<void*>(&ibv_destroy_qp),
      reinterpret_cast<void*>(&ibv_modify_qp),       reinterpret_cast<void*>(&ibv_query_qp),
      reinterpret_cast<void*>(&ibv_create_cq),       reinterpret_cast<void*>(&ibv_destroy_cq),
      reinterpret_cast<void*>(&ibv_query_port),      reinterpret_cast<void*>(&ibv_get_async_event),
      reinterpret_cast<void*>(&ibv_ack_async_event), reinterpret_cast<void*>(&ibv_reg_mr),
      reinterpret_cast<void*>(&ibv_reg_mr_iova),     reinterpret_cast<void*>(&ibv_reg_mr_iova2),
      reinterpret_cast<void*>(&ibv_reg_dmabuf_mr),   reinterpret_cast<void*>(&ibv_query_gid),
      reinterpret_cast<void*>(&_ibv_query_gid_ex),   reinterpret_cast<void*>(&_ibv_query_gid_table),
      reinterpret_cast<void*>(&ibv_create_ah),       reinterpret_cast<void*>(&ibv_create_ah_from_wc),
      reinterpret_cast<void*>(&ibv_destroy_ah),      reinterpret_cast<void*>(&ibv_query_device),
      reinterpret_cast<void*>(&ibv_alloc_pd),        reinterpret_cast<void*>(&ibv_dealloc_pd),
      reinterpret_cast<void*>(&ibv_dereg_mr),        reinterpret_cast<void*>(&ibv_create_srq),
      reinterpret_cast<void*>(&ibv_destroy_srq),     reinterpret_cast<void*>(&ibv_create_comp_channel),
      reinterpret_cast<void*>(&ibv_destroy_comp_channel),
      reinterpret_cast<void*>(&ibv_get_cq_event),    reinterpret_cast<void*>(&ibv_resize_cq),
  };
  static_assert(sizeof wrappers / sizeof wrappers[0] == unsigned(Symbol::kIntercepted));
  return wrappers[index];
}

// What a look-up by the program must return instead of the real symbol, or nullptr for 'look it up yourself'.
void* find_wrapper(void* handle, const char* name, const char* version) {
  find_lookups();
  if (g_environment.board[0] == 0 || name == nullptr || handle == RTLD_NEXT) return nullptr;
  const int index = index_of(name, unsigned(Symbol::kIntercepted));
  if (index < 0) return nullptr;
  // libibverbs has symbols of before 2007 beside its own, with other structures: none of ours, nor of those
  // that we call. Those that have not changed since have no newer version.
  const bool unchanged =
      index == int(Symbol::kCreateCompChannel) || index == int(Symbol::kDestroyCompChannel);
  if (version != nullptr && same(version, "IBVERBS_1.0") && !unchanged) return nullptr;
  void* found = look_up(handle, name, version);
  if (found == nullptr) return nullptr;  // and the program's own look-up will leave the proper dlerror()
  void* wrapper = ours(unsigned(index));
  if (found != wrapper) {
    void* none = nullptr;
    g_real[index].compare_exchange_strong(none, found);
  }
  return wrapper;
}

__attribute__((constructor)) void at_load() { read_environment(); }

}  // namespace

const Environment& environment() { return g_environment; }

void read_environment() {
  copy(g_environment.board, sizeof g_environment.board, "FAULTINJECT_BOARD");
  copy(g_environment.node, sizeof g_environment.node, "FAULTINJECT_NODE");
  copy(g_environment.rank, sizeof g_environment.rank, "FAULTINJECT_RANK");
  copy(g_environment.nics, sizeof g_environment.nics, "FAULTINJECT_NICS");
  g_environment.destroys_disassociated = getenv("RDMAV_ALLOW_DISASSOC_DESTROY") != nullptr;
}

void* real_symbol(Symbol symbol) {
  const auto index = unsigned(symbol);
  void* known = g_real[index].load(std::memory_order_acquire);
  if (known != nullptr) return known;
  const char* name = kNames[index];
  void* mine = index < unsigned(Symbol::kIntercepted) ? ours(index) : nullptr;
  void* found = look_up(RTLD_NEXT, name, "IBVERBS_1.1");
  if (found == nullptr || found == mine) found = look_up(RTLD_NEXT, name, nullptr);
  if (found == nullptr || found == mine) {
    // Loaded by dlopen without RTLD_GLOBAL, with a plugin for instance.
    for (const char* file : {"libibverbs.so.1", "libibverbs.so"}) {
      void* handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      found = look_up(handle, name, "IBVERBS_1.1");
      if (found == nullptr) found = look_up(handle, name, nullptr);
      dlclose(handle);  // gives back our reference; the program still holds its own
      if (found != nullptr && found != mine) break;
    }
  }
  if (found == nullptr || found == mine) return nullptr;
  g_real[index].store(found, std::memory_order_release);
  return found;
}

}  // namespace faultinject

extern "C" {

__attribute__((visibility("hidden"), used)) void* faultinject_find_dlsym(void* handle, const char* name) {
  return faultinject::find_wrapper(handle, name, nullptr);
}
__attribute__((visibility("hidden"), used)) void* faultinject_find_dlvsym(void* handle, const char* name,
                                                                          const char* version) {
  return faultinject::find_wrapper(handle, name, version);
}

}  // extern "C"
