# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, ccache and output folders.
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "Libraries; bin/ and this one must stand beside each other")
include(GNUInstallDirs)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()

option(R2CCL_BUILD_TESTS "Build the tests" ON)
option(R2CCL_BUILD_BENCH "Build the Google Benchmark programs" ON)
option(R2CCL_CCACHE "Compile through ccache where it is present" ON)
option(R2CCL_CLANG_TIDY "Run clang-tidy while compiling" OFF)
option(R2CCL_FUZZ "Build the fuzz targets for libFuzzer, and everything they use with its coverage (clang only)" OFF)
option(CMAKE_UNITY_BUILD "Compile up to 40 sources of a library as one: most of a compiler's time is spent on headers" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40 CACHE STRING "Sources that are compiled as one")
option(R2CCL_CHECK_OWNERSHIP "Abort where a channel is touched with another's ownership (r2ccl/path/ownership.h)" OFF)
set(R2CCL_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize= (address,undefined or thread)")

if(R2CCL_CCACHE)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
endif()
if(R2CCL_CLANG_TIDY)
  find_program(CLANG_TIDY_PROGRAM clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY_PROGRAM})
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
# gcc collects its garbage from 256 MB on, again and again, which is a tenth of its time: here from 1 GB on (twice this).
if(NOT R2CCL_CLANG_TIDY)  # clang reads gcc's command, and warns of what it does not know
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
endif()
if(R2CCL_CHECK_OWNERSHIP)
  add_compile_definitions(R2CCL_CHECK_OWNERSHIP)
endif()
if(R2CCL_SANITIZE)
  # A report names functions and lines. With all debug information gcc takes nearly twice as long for the largest files.
  add_compile_options(-fsanitize=${R2CCL_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${R2CCL_SANITIZE})
else()
  # A shared library that lacks a symbol must fail here, not in somebody's job.
  string(APPEND CMAKE_SHARED_LINKER_FLAGS " -Wl,--no-undefined")
endif()

if(R2CCL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined)
endif()

# Everything that is loaded or started at run time lies in two folders, so that one relative path finds it
# in the build tree as well as in an installation. The virtual HCA has a folder of its own: it is put first
# in LD_LIBRARY_PATH and must not shadow anything else.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(R2CCL_VHCA_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/vhca")
include_directories("${CMAKE_SOURCE_DIR}")
