# What a user runs, as one target (`runtime`: everything but tests and benchmarks) and as an installation:
#   bin/           r2bench and the programs that it starts
#   lib/           libnccl-net-r2ccl.so, libfaultinject.so
#   lib/vhca/      the virtual HCA's libibverbs.so.1, in a folder of its own
#   share/r2ccl/   scenarios, plots, the schema of results
# The folders stand to each other as they do in the build tree, so lib is lib on every distribution.
add_custom_target(runtime)

function(r2ccl_install_target target kind destination)
  if(TARGET ${target})
    add_dependencies(runtime ${target})
    install(TARGETS ${target} ${kind} DESTINATION ${destination})
  endif()
endfunction()

r2ccl_install_target(r2bench RUNTIME bin)
r2ccl_install_target(r2bench-cpu-rank RUNTIME bin)
r2ccl_install_target(nccl-net-r2ccl LIBRARY lib)
r2ccl_install_target(faultinject LIBRARY lib)
if(TARGET ibverbs)
  add_dependencies(runtime ibverbs)
  install(DIRECTORY "${R2CCL_VHCA_OUTPUT_DIRECTORY}/" DESTINATION lib/vhca USE_SOURCE_PERMISSIONS)
endif()
install(DIRECTORY scenarios DESTINATION share/r2ccl FILES_MATCHING PATTERN "*.yaml")
install(DIRECTORY plots DESTINATION share/r2ccl FILES_MATCHING PATTERN "*.py")
install(DIRECTORY results DESTINATION share/r2ccl FILES_MATCHING PATTERN "*.schema.json")
install(FILES LICENSE README.md DESTINATION share/doc/r2ccl)
