#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adding a kind of fault takes one file and its test: the two sources of faults/README.md are put into a copy of faultinject, and nothing else is
changed. The plans of that copy know the fault, its library has it, and the test passes.
Usage: one_file_test.py CXX [VHCA_HOST VHCA] (CMake's compiler; libvhca_host.a and the folder of the virtual HCA's libibverbs.so.1, without
which the test is not built)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(one_file CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(YAMLCPP REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
include_directories(${CMAKE_SOURCE_DIR} ${ROOT})
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
foreach(tests r2ccl_add_test r2ccl_add_bench r2ccl_add_fuzzer r2ccl_compile_apart r2ccl_precompile_own r2ccl_use_headers)
  function(${tests})
  endfunction()
endforeach()
add_subdirectory(faultinject)
add_executable(one_file main.cc)
target_link_libraries(one_file faultinject_plan)
if(VHCA_HOST)
  find_package(GTest REQUIRED)
  file(GLOB agent faultinject/testing/agent/*.cc)
  add_executable(faultinject_agent ${agent})
  target_link_libraries(faultinject_agent PkgConfig::IBVERBS Threads::Threads ${CMAKE_DL_LIBS})
  add_executable(late_nth_test faultinject/faults/late_nth_test.cc faultinject/tests/testing/nodes.cc)
  target_compile_definitions(late_nth_test PRIVATE FAULTINJECT_SANITIZER_RUNTIME="")
  target_link_libraries(late_nth_test faultinject_board ${VHCA_HOST} GTest::gtest GTest::gtest_main Threads::Threads)
  add_dependencies(late_nth_test faultinject faultinject_agent)
endif()
"""
MAIN = """#include <yaml-cpp/yaml.h>
#include <iostream>
#include "faultinject/plan/plan.h"
int main(int, char** arguments) try {
  const auto fault = faultinject::parse_fault(YAML::Load(arguments[1]), "plan.yaml");
  std::cout << fault.kind->name << " " << fault.kind->present << " " << fault.value("nth") << " " << fault.time("late").count() << std::endl;
} catch (const std::exception& error) {
  std::cout << error.what() << std::endl;
}
"""


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def source_of_the_page(name):
    """The block of the page that has `name` in it."""
    with open(os.path.join(ROOT, "faultinject", "faults", "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```cpp\n(.*?)^```", file.read(), re.S | re.M)
    return next(block for block in blocks if name in block)


def main():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(ROOT, "faultinject"), os.path.join(folder, "faultinject"))
        for name, text in (("CMakeLists.txt", PROJECT), ("main.cc", MAIN), (os.path.join("faultinject", "faults", "late_nth.cc"), source_of_the_page("class LateNth ")),
                           (os.path.join("faultinject", "faults", "late_nth_test.cc"), source_of_the_page("class LateNthTest "))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        build = os.path.join(folder, "build")
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
        compiler, *vhca = sys.argv[1:]
        run("cmake", "-S", folder, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler}", f"-DROOT={ROOT}", f"-DVHCA_HOST={vhca[0] if vhca else ''}", *launcher)
        run("cmake", "--build", build, "--parallel", "2", "--target", "one_file", "faultinject", *(["late_nth_test"] if vhca else []))
        program = os.path.join(build, "bin", "one_file")
        for plan, wanted in (("{target: node0/nic0, kind: late_nth}", "late_nth sends late now and then 10 1000000000"),
                             ("{target: node0/nic0, kind: late_nth, nth: 3, late: 5 ms, peer: '*/*'}", "late_nth sends late now and then 3 5000000"),
                             ("{target: node0/nic0, kind: late_nth, nth: 0}", "'nth' must be 1 or more"),
                             ("{target: node0/nic0, kind: port_down, nth: 3}", "'nth' has no meaning for port_down (it belongs to late_nth)")):
            said = run(program, plan)
            if wanted not in said:
                sys.exit(f"{plan}: wanted '{wanted}', got '{said}'")
        with open(os.path.join(build, "lib", "libfaultinject.so"), "rb") as library:
            if b"late_nth" not in library.read():
                sys.exit("libfaultinject.so does not have the fault")
        if vhca:
            os.symlink(vhca[1], os.path.join(build, "lib", "vhca"))
            said = run(os.path.join(build, "bin", "late_nth_test"))
            if "1 test from 1 test suite ran" not in said:
                sys.exit(said)
    print("one file was enough")


if __name__ == "__main__":
    main()
