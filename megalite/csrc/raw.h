// Binding kernels by address: a pointer parameter is an integer in Python (Tensor.data_ptr(), 0 for none), and the
// kernel runs without the GIL. Sizes, dtypes and layouts are checked in megalite/ops, where an error can name the
// tensor.
#pragma once

#include <cstdint>
#include <type_traits>

#include <pybind11/pybind11.h>

namespace megalite {

template <typename P>
using Raw = std::conditional_t<std::is_pointer_v<P>, uintptr_t, P>;

template <typename P>
P from_raw(Raw<P> value) {
  if constexpr (std::is_pointer_v<P>) return reinterpret_cast<P>(value);
  else return value;
}

template <typename... P>
auto raw(void (*kernel)(P...)) {
  return [kernel](Raw<P>... values) {
    pybind11::gil_scoped_release unlocked;
    kernel(from_raw<P>(values)...);
  };
}

}  // namespace megalite
