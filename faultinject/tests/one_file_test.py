#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adding a kind of fault takes one file: the code of faults/README.md is put as faults/late_nth.cc into a copy of faultinject, and nothing else
is changed. The plans of that copy know the fault, and its library has it. Usage: one_file_test.py CXX (CMake's compiler)."""

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
include_directories(${CMAKE_SOURCE_DIR})
foreach(tests r2ccl_add_test r2ccl_add_bench r2ccl_add_fuzzer)
  function(${tests})
  endfunction()
endforeach()
add_subdirectory(faultinject)
add_executable(one_file main.cc)
target_link_libraries(one_file faultinject_plan)
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


def fault_of_the_page():
    with open(os.path.join(ROOT, "faultinject", "faults", "README.md"), encoding="utf-8") as file:
        blocks = [re.sub(r"^   ", "", block, flags=re.M) for block in re.findall(r"   ```cpp\n(.*?)   ```", file.read(), re.S)]
    declaration = next(block for block in blocks if ".name = \"late_nth\"" in block)
    behaviour = next(block for block in blocks if "class LateNth" in block)
    return ('#include "faultinject/plan/kind.h"\n\n#ifdef FAULTINJECT_LIBRARY\n#include "faultinject/preload/context.h"\n\n'
            f"namespace faultinject {{\nnamespace {{\n\n{behaviour}\n}}  // namespace\n}}  // namespace faultinject\n#endif\n\n{declaration}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(ROOT, "faultinject"), os.path.join(folder, "faultinject"))
        for name, text in (("CMakeLists.txt", PROJECT), ("main.cc", MAIN), (os.path.join("faultinject", "faults", "late_nth.cc"), fault_of_the_page())):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        build = os.path.join(folder, "build")
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
        run("cmake", "-S", folder, "-B", build, f"-DCMAKE_CXX_COMPILER={sys.argv[1]}", *launcher)
        run("cmake", "--build", build, "--parallel", "2", "--target", "one_file", "faultinject")
        program = os.path.join(build, "one_file")
        for plan, wanted in (("{target: node0/nic0, kind: late_nth}", "late_nth sends late now and then 10 1000000000"),
                             ("{target: node0/nic0, kind: late_nth, nth: 3, late: 5 ms, peer: '*/*'}", "late_nth sends late now and then 3 5000000"),
                             ("{target: node0/nic0, kind: late_nth, nth: 0}", "'nth' must be 1 or more"),
                             ("{target: node0/nic0, kind: port_down, nth: 3}", "'nth' has no meaning for port_down (it belongs to late_nth)")):
            said = run(program, plan)
            if wanted not in said:
                sys.exit(f"{plan}: wanted '{wanted}', got '{said}'")
        with open(os.path.join(build, "faultinject", "libfaultinject.so"), "rb") as library:
            if b"late_nth" not in library.read():
                sys.exit("libfaultinject.so does not have the fault")
    print("one file was enough")


if __name__ == "__main__":
    main()
