// Where the backward pass of attention reads and writes.
#pragma once

#include "cpu/kernels/attention.h"

namespace megalite::MEGALITE_ISA {

template <typename T>
struct GradTensors {
  T* dqkv;
  const T *dy, *y, *qkv;
  const Softmax* softmax;
  float* partial;  // [tasks, 2, padded, width], where heads share keys: the gradients of keys and values of each
};

// Stores packed rows, as pack() takes them.
template <typename T>
inline void unpack(Rows<T> to, const float* from, const Attention& shape, int64_t begin, int64_t count, float factor) {
  for (int64_t row = 0; row < count; ++row) {
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      store(to[begin + row] + i, load(from + row * shape.width() + i, lanes) * factor, lanes);
    });
  }
}

// Stores what one head has to say of keys and values: as it is, or where those of its group are added up.
template <typename T>
inline void put_key_grads(const GradTensors<T>& tensors, const Attention& shape, int64_t task, const float* key_grad,
                          const float* value_grad) {
  const int64_t size = shape.padded() * shape.width();
  if (shape.heads == 1) {
    unpack(part_of(tensors.dqkv, shape, task, kKey), key_grad, shape, 0, shape.length, 1.0f);
    unpack(part_of(tensors.dqkv, shape, task, kValue), value_grad, shape, 0, shape.length, 1.0f);
  } else {
    memcpy(tensors.partial + 2 * task * size, key_grad, size * sizeof(float));
    memcpy(tensors.partial + (2 * task + 1) * size, value_grad, size * sizeof(float));
  }
}

}  // namespace megalite::MEGALITE_ISA
