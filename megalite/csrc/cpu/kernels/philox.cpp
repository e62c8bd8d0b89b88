// Normal numbers as megalite/ops/philox.py defines them: from correctly rounded operations alone (this file is compiled
// without fused multiply-adds), so that every machine, and the reference, make the same bits.
#include "cpu/kernels.h"
#include "cpu/kernels/philox.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

typedef double DoubleVec __attribute__((vector_size(8 * kBlocks)));
typedef int64_t SignVec __attribute__((vector_size(8 * kBlocks)));

inline DoubleVec select(SignVec condition, DoubleVec yes, DoubleVec no) { return condition ? yes : no; }

// Whole numbers below 2^52.
inline DoubleVec to_double(LongVec x) { return bit_cast<DoubleVec>(x | 0x4330000000000000u) - 0x1p52; }

template <int kTerms>
inline DoubleVec polynomial(const double (&terms)[kTerms], DoubleVec x) {
  DoubleVec sum = terms[kTerms - 1] - DoubleVec{};
  for (int i = kTerms - 2; i >= 0; --i) sum = sum * x + terms[i];
  return sum;
}

inline DoubleVec sqrt(DoubleVec x) {
#if defined(__AVX512F__)
  return bit_cast<DoubleVec>(_mm512_sqrt_pd(bit_cast<__m512d>(x)));
#elif defined(__AVX2__)
  return bit_cast<DoubleVec>(_mm256_sqrt_pd(bit_cast<__m256d>(x)));
#else
  for (int lane = 0; lane < kBlocks; ++lane) x[lane] = __builtin_sqrt(x[lane]);
  return x;
#endif
}

// sqrt(-2 ln(u / 2^32)) for u = word + 1: u = m 2^e with m in [0.75, 1.5), ln(m) = 2 atanh((m - 1) / (m + 1)).
inline DoubleVec radius(LongVec word) {
  static const double kAtanh[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                  2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
  const LongVec bits = bit_cast<LongVec>(to_double((word & 0xFFFFFFFFu) + 1));
  const LongVec above = (bits >> 51) & 1;  // whether the mantissa is 1.5 or more
  const LongVec exponent = (bits >> 52) - 1023 + above;
  const DoubleVec m = bit_cast<DoubleVec>((bits & 0xFFFFFFFFFFFFFu) | ((1023 - above) << 52));
  const DoubleVec s = (m - 1.0) / (m + 1.0);
  const DoubleVec log = (to_double(exponent) - 32.0) * 0.6931471805599453 + s * polynomial(kAtanh, s * s);
  return sqrt(log * -2.0);
}

struct Turn {
  DoubleVec cos, sin;
};

// Cosine and sine of 2 pi u / 2^32 for u = word + 1: quarter turns, and a rest within an eighth of a turn.
inline Turn turn(LongVec word) {
  static const double kSin[] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                                1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  static const double kCos[] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800,
                                1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
  const LongVec u = (word & 0xFFFFFFFFu) + 1;
  const LongVec quarter = (u + 0x20000000u) >> 30;
  const DoubleVec x = (to_double(u) - to_double(quarter) * 0x1p30) * (6.283185307179586 * 0x1p-32), square = x * x;
  const DoubleVec cos = polynomial(kCos, square), sin = x * polynomial(kSin, square);
  const SignVec odd = bit_cast<SignVec>(quarter & 1) != 0;
  const SignVec cos_negative = bit_cast<SignVec>((quarter + 1) & 2) != 0;
  const SignVec sin_negative = bit_cast<SignVec>(quarter & 2) != 0;
  const DoubleVec c = select(odd, sin, cos), s = select(odd, cos, sin);
  return {select(cos_negative, -c, c), select(sin_negative, -s, s)};
}

// kWords normals of the blocks from `first` on, in order.
inline void normals(double* out, uint64_t first, const Schedule& keys) {
  Words groups[1];
  philox(groups, first, keys);
  const Words& words = groups[0];
  for (int pair = 0; pair < 2; ++pair) {
    const DoubleVec r = radius(words.word[2 * pair]);
    const Turn t = turn(words.word[2 * pair + 1]);
    const DoubleVec cos = r * t.cos, sin = r * t.sin;
    for (int lane = 0; lane < kBlocks; ++lane) {
      out[4 * lane + 2 * pair] = cos[lane];
      out[4 * lane + 2 * pair + 1] = sin[lane];
    }
  }
}

constexpr int64_t kTile = 4096;  // elements of a run that a thread makes at once; a multiple of kWords

// Elements [from, to) of the stream.
template <typename T>
void fill_range(T* out, uint64_t from, uint64_t to, double std, const Schedule& keys) {
  for (uint64_t at = from & ~uint64_t{3}; at < to; at += kWords) {
    double values[kWords];
    float rounded[kWords];
    T elements[kWords];
    normals(values, at / 4, keys);
    for (int i = 0; i < kWords; ++i) rounded[i] = static_cast<float>(values[i] * std);
    for (int i = 0; i < kWords; i += kLanes) store(elements + i, load(rounded + i));
    const uint64_t begin = at < from ? from : at, end = at + kWords < to ? at + kWords : to;
    memcpy(out + (begin - from), elements + (begin - at), (end - begin) * sizeof(T));
  }
}

}  // namespace

void normal_fill(void* out, const int64_t* starts, int64_t runs, int64_t length, double std, int64_t key0, int64_t key1,
                 int dtype) {
  const Schedule keys({(uint32_t)key0, (uint32_t)key1});
  const int64_t tiles = (length + kTile - 1) / kTile;
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    for_rows(runs * tiles, length < kTile ? length : kTile, [=](int64_t index) {
      const int64_t run = index / tiles, begin = index % tiles * kTile;
      const int64_t end = begin + kTile < length ? begin + kTile : length;
      fill_range((T*)out + run * length + begin, starts[run] + begin, starts[run] + end, std, keys);
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
