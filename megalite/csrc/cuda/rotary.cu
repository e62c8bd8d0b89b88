// Rotary positions: pairs of channels of queries and keys, turned by an angle that depends on the position.
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {
namespace {

struct Rotation {
  Rows shape;  // a row is a position: all heads of all groups
  int heads, rotated_heads, head_dim, half;
  bool interleaved;
  float direction;
};

template <int n>
struct Angles {
  Floats<n> cos, sin;
};

template <int n>
__device__ void turn(Floats<n>& first, Floats<n>& second, const Angles<n>& angles) {
  const auto turned = first * angles.cos - second * angles.sin;
  second = second * angles.cos + first * angles.sin;
  first = turned;
}

// Pairs (i, half + i), n of them.
template <int n, typename T>
__device__ void turn_halves(T* y, const T* x, const Angles<n>& angles, int half) {
  auto first = load<n>(x), second = load<n>(x + half);
  turn(first, second, angles);
  store(y, first);
  store(y + half, second);
}

// Pairs (2i, 2i + 1), n of them.
template <int n, typename T>
__device__ void turn_neighbours(T* y, const T* x, const Angles<n>& angles) {
  auto pairs = load<2 * n>(x);
  Floats<n> first, second;
#pragma unroll
  for (int i = 0; i < n; ++i) first[i] = pairs[2 * i], second[i] = pairs[2 * i + 1];
  turn(first, second, angles);
#pragma unroll
  for (int i = 0; i < n; ++i) pairs[2 * i] = first[i], pairs[2 * i + 1] = second[i];
  store(y, pairs);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) rotate(T* y, const T* x, const float* cos, const float* sin, Rotation r) {
  const Team<kSize> team;
  for_rows(team, r.shape, [&](int64_t position) {
    const T* in = x + position * r.shape.cols;
    T* out = y + position * r.shape.cols;
    const auto angles_at = [&](int pair, auto width) {
      constexpr int n = decltype(width)::value;
      const int64_t at = position * r.half + pair;
      return Angles<n>{load<n>(cos + at), load<n>(sin + at) * r.direction};
    };
    // A pack lies within one head, and within one half of its rotated channels; what does not start a pair is left out.
    const auto turn_at = [&](int64_t i, int channel, auto width) {
      constexpr int n = decltype(width)::value;
      if (!r.interleaved) {
        if (channel < r.half) turn_halves(out + i, in + i, angles_at(channel, width), r.half);
      } else if constexpr (n > 1) {
        turn_neighbours(out + i, in + i, angles_at(channel / 2, Width<n / 2>{}));
      } else if (channel % 2 == 0) {
        Floats<1> first = load<1>(in + i), second = load<1>(in + i + 1);
        turn(first, second, angles_at(channel / 2, width));
        store(out + i, first);
        store(out + i + 1, second);
      }
    };
    for_columns<T>(team, r.shape.cols, r.shape.aligned, [&](int64_t i, auto width) {
      const int head = static_cast<int>(i) / r.head_dim, channel = static_cast<int>(i) % r.head_dim;
      if (head % r.heads < r.rotated_heads && channel < 2 * r.half) turn_at(i, channel, width);
      else if (in != out) store(out + i, load<decltype(width)::value>(in + i));
    });
  });
}

}  // namespace

void rotary(void* y, const void* x, const float* cos, const float* sin, int64_t positions, int64_t groups,
            int64_t heads, int64_t rotated_heads, int64_t head_dim, int64_t half, int interleaved, double direction,
            int dtype, Stream stream) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPack<T>;
    const int64_t width = groups * heads * head_dim;
    const bool packed = head_dim % n == 0 && half % n == 0 && aligned(y, x, cos, sin);
    const Rotation rotation{{positions, width, packed}, (int)heads,       (int)rotated_heads, (int)head_dim, (int)half,
                            interleaved != 0,           (float)direction};
    with_team(width, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(positions, kBlock / size), kBlock, stream}, rotate<T, size>, y, x, cos, sin, rotation);
    });
  });
}

}  // namespace megalite::cuda
