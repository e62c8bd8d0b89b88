// Sums of squares in float64.
#include "cpu/kernels.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

typedef double DoubleVec __attribute__((vector_size(8 * kLanes / 2)));
typedef float HalfFloats __attribute__((vector_size(4 * kLanes / 2)));

constexpr int64_t kBlock = 1 << 16;

// By name, as GCC 12 makes six instructions of one.
#if defined(__AVX512F__)
inline DoubleVec to_double(HalfFloats x) { return bit_cast<DoubleVec>(_mm512_cvtps_pd(bit_cast<__m256>(x))); }
#elif defined(__AVX2__)
inline DoubleVec to_double(HalfFloats x) { return bit_cast<DoubleVec>(_mm256_cvtps_pd(bit_cast<__m128>(x))); }
#else
inline DoubleVec to_double(HalfFloats x) { return __builtin_convertvector(x, DoubleVec); }
#endif

struct Halves {
  HalfFloats half[2];
};

template <bool kScale, typename T>
double sum_block(T* x, int64_t size, float factor) {
  DoubleVec low{}, high{};
  for_lanes(size, [&](int64_t i, auto lanes) {
    Vec value = load_ahead(x + i, lanes);
    if (kScale) {
      store(x + i, value * factor, lanes);
      value = load(x + i, lanes);
    }
    const Halves halves = bit_cast<Halves>(value);
    const DoubleVec first = to_double(halves.half[0]), second = to_double(halves.half[1]);
    low += first * first;
    high += second * second;
  });
  low += high;
  double sum = 0;
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += low[lane];
  return sum;
}

}  // namespace

void sum_of_squares(double* partial, void* x, int64_t size, double factor, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    for_rows((size + kBlock - 1) / kBlock, kBlock, [=](int64_t block) {
      T* from = (T*)x + block * kBlock;
      const int64_t count = size - block * kBlock < kBlock ? size - block * kBlock : kBlock;
      partial[block] =
          factor == 1.0 ? sum_block<false>(from, count, 1.0f) : sum_block<true>(from, count, (float)factor);
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
