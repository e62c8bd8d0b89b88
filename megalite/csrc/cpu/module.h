// The part of megalite._native that holds the CPU kernels.
#pragma once

#include <pybind11/pybind11.h>

namespace megalite {

void bind_cpu(pybind11::module_& m);

// Keeps large blocks of memory in the process between uses, where the C library is glibc; MEGALITE_MALLOC=0 does not.
// Returns whether it did.
bool tune_malloc();

}  // namespace megalite
