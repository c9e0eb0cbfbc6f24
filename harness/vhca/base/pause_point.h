// SPDX-License-Identifier: Apache-2.0
// Where another process may come in between: after a look at the shared memory, before the step that follows
// from it. A test defines the macro before it includes the source file, and holds a thread up or ends it
// there. In the library the points are nothing.
#pragma once

#if !defined(VHCA_PAUSE_POINT)
#define VHCA_PAUSE_POINT(name)
#endif
