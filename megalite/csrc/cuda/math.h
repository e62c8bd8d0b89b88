// Functions of one float.
#pragma once

#include "cuda/platform.h"

namespace megalite::cuda {

// 1 / (1 + exp(-x)), and one minus it without cancellation.
struct Sigmoid {
  float value, rest;
};

__device__ inline Sigmoid sigmoid(float x) {
  const float e = expf(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;
  return x < 0.0f ? Sigmoid{smaller, larger} : Sigmoid{larger, smaller};
}

}  // namespace megalite::cuda
