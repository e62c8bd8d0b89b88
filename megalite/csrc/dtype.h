// Element types that kernels take, by the codes of megalite/ops/kernels.py.
#pragma once

#include <cstdint>

namespace megalite {

enum Dtype : int { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// Calls body(T{}) with the element type of `dtype`.
template <typename Body>
inline void with_dtype(int dtype, Body body) {
  if (dtype == kFloat32) body(float{});
  else if (dtype == kBfloat16) body(Bfloat16{});
  else body(Float16{});
}

}  // namespace megalite
