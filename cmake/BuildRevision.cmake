# SPDX-License-Identifier: Apache-2.0
# Run by every build: writes the commit into OUT, which changes only when the commit does.
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=10 --match= OUTPUT_VARIABLE revision
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT revision)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define R2CCL_BUILD_REVISION \"${revision}\"\n")
