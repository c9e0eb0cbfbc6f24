# SPDX-License-Identifier: Apache-2.0
# r2ccl_use_headers(TARGET core|harness|tests): headers of libraries that many sources read, compiled once for the libraries
#   that are optimised in full (core), once for those of the harness that are not (harness), and once for all tests. Sources
#   include what they use all the same, and build without this. Not with ccache, which cannot share such objects between folders.
# r2ccl_precompile_own(TARGET HEADER ...): headers that many sources of this library read, compiled once for it alone where each
#   source is compiled by itself.
option(R2CCL_PRECOMPILE_HEADERS "Compile the headers of libraries once" ON)
if(CCACHE_PROGRAM OR R2CCL_FUZZ OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(R2CCL_PRECOMPILE_HEADERS OFF CACHE BOOL "Compile the headers of libraries once" FORCE)
endif()

# A precompiled header fits sources that are compiled with the same options only: in release with -O2 (core) or -Og (all
# others), and for a library (-fPIC) or for a program (-fPIE).
function(r2ccl_precompile holder)
  target_precompile_headers(${holder} PRIVATE ${ARGN} <algorithm> <array> <atomic> <chrono> <functional> <map> <memory> <optional>
    <string> <thread> <vector>)
endfunction()

if(R2CCL_PRECOMPILE_HEADERS)
  set(r2ccl_holder "${PROJECT_SOURCE_DIR}/cmake/headers/main.cc")
  set(r2ccl_of_files <filesystem> <fstream> <random> <set> <sstream>)
  add_library(r2ccl_core_headers OBJECT EXCLUDE_FROM_ALL "${r2ccl_holder}")
  r2ccl_precompile(r2ccl_core_headers <mutex> <span>)
  add_library(r2ccl_harness_headers OBJECT EXCLUDE_FROM_ALL "${r2ccl_holder}")
  target_compile_options(r2ccl_harness_headers PRIVATE $<$<CONFIG:Release>:-Og>)
  r2ccl_precompile(r2ccl_harness_headers <nlohmann/json.hpp> ${r2ccl_of_files})
  if(R2CCL_BUILD_TESTS)
    add_executable(r2ccl_tests_headers EXCLUDE_FROM_ALL "${r2ccl_holder}")
    target_compile_options(r2ccl_tests_headers PRIVATE $<$<CONFIG:Release>:-Og>)
    target_link_libraries(r2ccl_tests_headers PRIVATE GTest::gtest)
    r2ccl_precompile(r2ccl_tests_headers <gtest/gtest.h> ${r2ccl_of_files})
  endif()
endif()

function(r2ccl_use_headers target kind)
  if(R2CCL_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM r2ccl_${kind}_headers)
  endif()
endfunction()

function(r2ccl_precompile_own target)
  if(R2CCL_PRECOMPILE_HEADERS AND NOT CMAKE_UNITY_BUILD)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
