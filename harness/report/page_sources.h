// SPDX-License-Identifier: Apache-2.0
// The files of page/, as the build found them.
#pragma once

namespace r2bench {

extern const char* const kPageFrame;     ///< report.html, with {{title}}, {{style}}, {{data}} and {{script}}
extern const char* const kPageStyle;     ///< report.css
extern const char* const kPageTimeline;  ///< timeline.js
extern const char* const kPageScript;    ///< report.js

}  // namespace r2bench
