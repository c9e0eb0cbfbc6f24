# SPDX-License-Identifier: Apache-2.0
# r2ccl_add_test(NAME n SOURCES ... LIBRARIES ... LABEL unit|emulated|rxe|gpu [TIMEOUT s] [COMPUTES] [ENVIRONMENT K=V ...])
#   one GoogleTest program and one ctest entry. No test waits longer than its TIMEOUT (60 s unless told).
#   COMPUTES: the test's own sources compute for seconds, and are optimised in full; those of others with -Og, which compiles sooner.
#   Unit tests run side by side, one for each core; all others alone, unless r2ccl_run_tests says something else.

# r2ccl_run_tests(ALONE|ANY_SPEED|WAITS NAME ...): how tests of the same directory run under `r2bench test`, which gives ctest
#   two places for each core.
#   ALONE: measures time on a machine that should be its own.
#   ANY_SPEED: what it asserts holds on a machine of any speed. Takes two places, as unit tests do.
#   WAITS: that, and it waits for most of its time. Takes one.
function(r2ccl_run_tests how)
  foreach(name ${ARGN})
    if(NOT TEST ${name})
      continue()
    endif()
    if(how STREQUAL "ALONE")
      set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    elseif(how STREQUAL "ANY_SPEED")
      set_tests_properties(${name} PROPERTIES RUN_SERIAL OFF PROCESSORS 2)
    elseif(how STREQUAL "WAITS")
      set_tests_properties(${name} PROPERTIES RUN_SERIAL OFF PROCESSORS 1)
    else()
      message(FATAL_ERROR "r2ccl_run_tests: ${how} is none of ALONE, ANY_SPEED, WAITS")
    endif()
  endforeach()
endfunction()

# r2ccl_start_early(SECONDS NAME ...): tests that take so long. ctest starts the longest first, but in a new build folder it
#   knows none; those that start last then run by themselves at the end.
function(r2ccl_start_early seconds)
  foreach(name ${ARGN})
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
  endforeach()
endfunction()

# Tests are linked with gold where it is, in a third of the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT R2CCL_SANITIZE)
  find_program(R2CCL_GOLD NAMES ld.gold NO_CMAKE_PATH)
endif()

function(r2ccl_add_test)
  if(NOT R2CCL_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "COMPUTES" "NAME;LABEL;TIMEOUT" "SOURCES;LIBRARIES;ENVIRONMENT" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  add_executable(${T_NAME} ${T_SOURCES})
  # Files of one program are compiled as one where CMAKE_UNITY_BUILD says so; those that declare the same names apart.
  list(LENGTH T_SOURCES files)
  if(files EQUAL 1)
    set_target_properties(${T_NAME} PROPERTIES UNITY_BUILD OFF)
  endif()
  if(NOT T_COMPUTES)
    target_compile_options(${T_NAME} PRIVATE $<$<CONFIG:Release>:-Og>)
    r2ccl_use_headers(${T_NAME} tests)  # are compiled with -Og
  endif()
  target_link_libraries(${T_NAME} PRIVATE ${T_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  if(R2CCL_GOLD)
    target_link_options(${T_NAME} PRIVATE -fuse-ld=gold)
  endif()
  add_test(NAME ${T_NAME} COMMAND ${T_NAME})
  set_tests_properties(${T_NAME} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT})
  if(T_LABEL STREQUAL "unit")
    r2ccl_run_tests(ANY_SPEED ${T_NAME})
  else()
    r2ccl_run_tests(ALONE ${T_NAME})
  endif()
  if(T_ENVIRONMENT)
    set_tests_properties(${T_NAME} PROPERTIES ENVIRONMENT "${T_ENVIRONMENT}")
  endif()
endfunction()

# r2ccl_compile_apart(FILE ...): sources that are never compiled as one with others: they declare names that others of
#   their library or test declare, too (a shim for each version of an interface, a fault each), or a test links a stand-in
#   for them.
function(r2ccl_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# r2ccl_use_stand_in_cuda(TARGET): lets a test use harness/vhca/testing/stand_in_gpu.h.
function(r2ccl_use_stand_in_cuda target)
  if(TARGET ${target})
    target_compile_definitions(${target} PRIVATE
      "VHCA_STAND_IN_CUDA=\"${CMAKE_BINARY_DIR}/lib/stand-in-cuda/libcuda.so.1\"")
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
    add_dependencies(${target} stand_in_cuda)
  endif()
endfunction()

# r2ccl_add_bench(NAME n SOURCES ... LIBRARIES ...): one Google Benchmark program in bin/.
function(r2ccl_add_bench)
  if(NOT R2CCL_BUILD_BENCH)
    return()
  endif()
  cmake_parse_arguments(B "" "NAME" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${B_NAME} ${B_SOURCES})
  set_target_properties(${B_NAME} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${B_NAME} PRIVATE ${B_LIBRARIES} benchmark::benchmark Threads::Threads)
endfunction()

# r2ccl_add_fuzzer(NAME n SOURCE f CORPUS folder MUTATIONS count LIBRARIES ... LABEL unit|emulated [ENVIRONMENT K=V ...])
#   one fuzz target, LLVMFuzzerTestOneInput. With R2CCL_FUZZ (the preset `fuzz`: clang) a libFuzzer program; otherwise,
#   with any compiler, a test that runs the target over its corpus and so many mutations of it, always the same.
function(r2ccl_add_fuzzer)
  cmake_parse_arguments(F "" "NAME;SOURCE;CORPUS;MUTATIONS;LABEL" "LIBRARIES;ENVIRONMENT" ${ARGN})
  if(R2CCL_FUZZ)
    add_executable(${F_NAME} ${F_SOURCE})
    target_link_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers ${F_NAME})
  elseif(R2CCL_BUILD_TESTS)
    if(NOT TARGET r2ccl_fuzz_main)  # the same for all of them
      add_library(r2ccl_fuzz_main OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/fuzz/main.cc")
    endif()
    add_executable(${F_NAME} ${F_SOURCE})
    target_link_libraries(${F_NAME} PRIVATE r2ccl_fuzz_main)
    set_target_properties(${F_NAME} PROPERTIES UNITY_BUILD OFF)
    add_test(NAME ${F_NAME} COMMAND ${F_NAME} "${CMAKE_CURRENT_SOURCE_DIR}/${F_CORPUS}" ${F_MUTATIONS})
    set_tests_properties(${F_NAME} PROPERTIES LABELS ${F_LABEL} TIMEOUT 600)
    if(F_ENVIRONMENT)
      set_tests_properties(${F_NAME} PROPERTIES ENVIRONMENT "${F_ENVIRONMENT}")
    endif()
    r2ccl_run_tests(ANY_SPEED ${F_NAME})
  else()
    return()
  endif()
  target_link_libraries(${F_NAME} PRIVATE ${F_LIBRARIES} Threads::Threads)
endfunction()
