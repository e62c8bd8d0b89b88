// Sums of squares in float64.
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {
namespace {

constexpr int64_t kElements = 1 << 16;  // of which a block makes one partial sum

template <typename T>
__global__ void __launch_bounds__(kBlock) sum_blocks(double* partial, T* x, int64_t size, float factor, bool packed) {
  const Team<kBlock> team;
  T* from = x + team.number * kElements;
  const int64_t rest = size - team.number * kElements;
  double squares = 0.0;
  for_columns<T>(team, rest < kElements ? rest : kElements, packed, [&](int64_t i, auto width) {
    constexpr int n = decltype(width)::value;
    auto value = load<n>(from + i);
    if (factor != 1.0f) {
      store(from + i, value * factor);
      value = load<n>(from + i);  // as it was rounded
    }
#pragma unroll
    for (int k = 0; k < n; ++k) squares += static_cast<double>(value[k]) * value[k];
  });
  squares = team.sum(squares);
  if (team.rank == 0) partial[team.number] = squares;
}

}  // namespace

void sum_of_squares(double* partial, void* x, int64_t size, double factor, int dtype, Stream stream) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    launch({divide_up(size, kElements), kBlock, stream}, sum_blocks<T>, partial, x, size, factor, aligned(x));
  });
}

}  // namespace megalite::cuda
