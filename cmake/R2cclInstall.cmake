# SPDX-License-Identifier: Apache-2.0
# What a user runs, as one target (`runtime`: everything but tests and benchmarks) and as an installation:
#   bin/           r2bench and the programs that it starts
#   lib/           libnccl-net-r2ccl.so, libfaultinject.so
#   lib/vhca/      the virtual HCA's libibverbs.so.1, in a folder of its own
#   share/r2ccl/   scenarios, plots, the schema of results
# The folders stand to each other as they do in the build tree. Each package installs its own part.
add_custom_target(runtime)
# The part of it that runs scenarios of the engine cpu on virtual NICs: a newcomer's first command waits for no more
# (r2bench-tools has all other commands).
add_custom_target(runtime_cpu)
foreach(target r2bench r2bench-cpu-rank nccl-net-r2ccl faultinject vhca)
  if(TARGET ${target})
    add_dependencies(runtime_cpu ${target})
  endif()
endforeach()
add_dependencies(runtime runtime_cpu)
foreach(target r2bench-tools r2bench-conformance r2bench-nccl-rank r2bench-exec-rank r2bench-real-guard r2bench-port-probe vhca-exec)
  if(TARGET ${target})
    add_dependencies(runtime ${target})
  endif()
endforeach()

install(FILES LICENSE README.md DESTINATION share/doc/r2ccl)
