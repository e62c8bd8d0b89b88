// The part of megalite._native that holds the CPU kernels.
#pragma once

#include <pybind11/pybind11.h>

namespace megalite {

void bind_cpu(pybind11::module_& m);

}  // namespace megalite
