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

typedef uint32_t HalfUints __attribute__((vector_size(2 * kLanes)));
typedef uint64_t Pairs __attribute__((vector_size(4 * kLanes)));

// Each of kLanes / 2 floats twice.
inline Pairs load_doubled(const float* from, Whole) {
  HalfUints bits;
  memcpy(&bits, from, sizeof bits);
  const Pairs pairs = __builtin_convertvector(bits, Pairs);
  return pairs | (pairs << 32);
}
inline Pairs load_doubled(const float* from, Part part) {
  float values[kLanes / 2] = {};
  memcpy(values, from, part.count / 2 * sizeof(float));
  return load_doubled(values, Whole{});
}

// Pairs (2i, 2i + 1): x * cos + (x with the members of pairs exchanged) * sin, negative for the first members.
template <typename T>
void turn_neighbours(T* y, const T* x, const float* cos, const float* sin, int64_t half, float direction) {
  for_lanes(2 * half, [=](int64_t i, auto lanes) {
    const Vec value = load(x + i, lanes);
    const Pairs pairs = bit_cast<Pairs>(value), signs = load_doubled(sin + i / 2, lanes) ^ 0x80000000u;
    const Vec exchanged = bit_cast<Vec>((pairs << 32) | (pairs >> 32));
    const Vec c = bit_cast<Vec>(load_doubled(cos + i / 2, lanes)), s = bit_cast<Vec>(signs) * direction;
    store(y + i, value * c + exchanged * s, lanes);
  });
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
