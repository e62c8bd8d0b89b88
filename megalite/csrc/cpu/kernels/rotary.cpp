// Rotary positions: pairs of channels of queries and keys, turned by an angle that depends on the position.
#include "cpu/kernels.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

// Pairs (i, half + i).
template <typename T>
void turn_halves(T* y, const T* x, const float* cos, const float* sin, int64_t half, float direction) {
  for_lanes(half, [=](int64_t i, auto lanes) {
    Vec c = load(cos + i, lanes), s = load(sin + i, lanes) * direction;
    Vec first = load(x + i, lanes), second = load(x + half + i, lanes);
    store(y + i, first * c - second * s, lanes);
    store(y + half + i, second * c + first * s, lanes);
  });
}

// Pairs (2i, 2i + 1).
template <typename T>
void turn_neighbours(T* y, const T* x, const float* cos, const float* sin, int64_t half, float direction) {
  for (int64_t start = 0; start < half; start += kLanes) {
    const int count = half - start < kLanes ? half - start : kLanes;
    T pairs[2 * kLanes] = {}, firsts[kLanes], seconds[kLanes];
    memcpy(pairs, x + 2 * start, 2 * count * sizeof(T));
    for (int i = 0; i < kLanes; ++i) firsts[i] = pairs[2 * i], seconds[i] = pairs[2 * i + 1];
    Vec c = load(cos + start, Part{count}), s = load(sin + start, Part{count}) * direction;
    Vec first = load(firsts), second = load(seconds);
    store(firsts, first * c - second * s);
    store(seconds, second * c + first * s);
    for (int i = 0; i < kLanes; ++i) pairs[2 * i] = firsts[i], pairs[2 * i + 1] = seconds[i];
    memcpy(y + 2 * start, pairs, 2 * count * sizeof(T));
  }
}

}  // namespace

void rotary(void* y, const void* x, const float* cos, const float* sin, int64_t positions, int64_t groups,
            int64_t heads, int64_t rotated_heads, int64_t head_dim, int64_t half, int interleaved, double direction,
            int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    const int64_t width = groups * heads * head_dim;
    for_rows(positions, width, [=](int64_t position) {
      const float *c = cos + position * half, *s = sin + position * half;
      const T* in = (const T*)x + position * width;
      T* out = (T*)y + position * width;
      if (out != in) memcpy(out, in, width * sizeof(T));
      for (int64_t head = 0; head < groups * heads; ++head) {
        if (head % heads >= rotated_heads) continue;
        auto turn = interleaved ? turn_neighbours<T> : turn_halves<T>;
        turn(out + head * head_dim, in + head * head_dim, c, s, half, (float)direction);
      }
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
