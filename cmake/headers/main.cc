// SPDX-License-Identifier: Apache-2.0
// Holds a precompiled header that others use (cmake/R2cclHeaders.cmake); it is never run.
int main() { return 0; }
