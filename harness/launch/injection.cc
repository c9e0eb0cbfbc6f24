// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/injection.h"

#include <unistd.h>

#include "harness/launch/process.h"

namespace r2bench {

std::string injector_library(const std::string& lib_dir) { return lib_dir + "/libfaultinject.so"; }

void add_injection(std::map<std::string, std::string>& environment, const Injection& injection) {
  environment["FAULTINJECT_BOARD"] = injection.board;
  environment["FAULTINJECT_NODE"] = injection.node;
  environment["FAULTINJECT_RANK"] = injection.rank;
  std::string libraries;
  for (const std::string& folder : injection.library_folders) libraries += folder + ":";
  libraries += injection.lib_dir;
  if (const auto own = environment.find("LD_LIBRARY_PATH"); own != environment.end() && !own->second.empty())
    libraries += ":" + own->second;
  environment["LD_LIBRARY_PATH"] = libraries;
  std::vector<std::string> preload;
  const std::string injector = injector_library(injection.lib_dir);
  if (access(injector.c_str(), R_OK) == 0) preload.push_back(injector);
  if (const auto own = environment.find("LD_PRELOAD"); own != environment.end())
    preload.push_back(own->second);
  environment["LD_PRELOAD"] = preload_value(preload);
}

}  // namespace r2bench
