// Attention of bfloat16 numbers by products of pairs: what the passes share. Scores are computed with a row for each
// key and a lane for each query, so that nothing is ever summed across lanes.
#pragma once

#include "cpu/kernels/attention_grad.h"

namespace megalite::MEGALITE_ISA {

// The heads of attention_forward and attention_backward for bfloat16, and the room, in floats, that they need. Here
// Softmax::top is in powers of two.
int64_t forward_room(const Attention& shape, Bfloat16);
void forward_head(Bfloat16* y, Softmax* softmax, const Bfloat16* qkv, const Attention& shape, int64_t task,
                  float* room);
int64_t backward_room(const Attention& shape, Bfloat16);
void backward_head(const GradTensors<Bfloat16>& tensors, const Attention& shape, int64_t task, float* room);

using PairFactor = FactorOf<Pair>;

constexpr int64_t kHalfBlock = kBlock / 2;
constexpr float kLog2E = 1.44269504f;

// The pairs of one row of a head.
inline int64_t depth_of(const Attention& shape) { return (shape.dim + 1) / 2; }

// Cuts a thread's room into arrays; without a room, only measures them.
struct Cut {
  float* room;
  int64_t used = 0;

  template <typename E>
  E* take(int64_t count) {
    const int64_t at = used;
    used += (count + kLanes - 1) / kLanes * kLanes;  // whole vectors, so that all arrays are aligned as the room is
    return room == nullptr ? nullptr : reinterpret_cast<E*>(room + at);
  }
};

// Rows [begin, begin + count), and zeros up to `rows`, as they are: pairs of numbers of one row, [rows, depth].
inline void pack_rows(Pair* to, Rows<const Bfloat16> from, const Attention& shape, int64_t begin, int64_t count,
                      int64_t rows) {
  const int64_t depth = depth_of(shape);
  memset(to, 0, rows * depth * sizeof(Pair));
  for (int64_t row = 0; row < count; ++row) {
    memcpy(to + row * depth, from[begin + row], shape.dim * sizeof(Bfloat16));
  }
}

// The same rows as pairs of numbers of two rows, [rows / 2, width].
inline void pack_pairs_of_rows(Pair* to, Rows<const Bfloat16> from, const Attention& shape, int64_t begin,
                               int64_t count, int64_t rows) {
  const int64_t width = shape.width();
  memset(to, 0, rows / 2 * width * sizeof(Pair));
  for (int64_t row = 0; row < count; row += 2) {
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      const Vec second = row + 1 < count ? load(from[begin + row + 1] + i, lanes) : Vec{};
      store(to + row / 2 * width + i, pair_of(load(from[begin + row] + i, lanes), second));
    });
  }
}

// Up to 2 * kLanes numbers.
inline UintVec load_numbers(const Bfloat16* from, int64_t count) {
  const __mmask32 some = count >= 2 * kLanes ? ~0u : (1u << count) - 1;
  return bit_cast<UintVec>(_mm512_maskz_loadu_epi16(some, from));
}

// Rows [begin, begin + count), and zeros up to kBlock, transposed: pairs of numbers of one row, [depth, kBlock].
inline void pack_columns(Pair* to, Rows<const Bfloat16> from, const Attention& shape, int64_t begin, int64_t count) {
  const int64_t depth = depth_of(shape);
  for (int64_t lane = 0; lane < kBlock; lane += kLanes) {
    for (int64_t pair = 0; pair < depth; pair += kLanes) {
      UintVec rows[kLanes];
      for (int64_t row = 0; row < kLanes; ++row) {
        const bool is_there = lane + row < count;
        rows[row] = is_there ? load_numbers(from[begin + lane + row] + 2 * pair, shape.dim - 2 * pair) : UintVec{};
      }
      transpose(rows);
      for (int64_t row = 0; row < kLanes && pair + row < depth; ++row) {
        store(to + (pair + row) * kBlock + lane, rows[row]);
      }
    }
  }
}

// Which queries of a block see a key.
struct Sight {
  int32_t begin, first[kBlock];

  explicit Sight(const Queries& queries) : begin(static_cast<int32_t>(queries.begin)) {
    for (int64_t row = 0; row < kBlock; ++row) {
      const bool is_whole = queries.first == nullptr || row >= queries.count;
      first[row] = is_whole ? 0 : static_cast<int32_t>(queries.first[queries.begin + row]);
    }
  }

  IntVec of(int64_t lane, int64_t key) const {
    IntVec query{}, lowest;
    for (int i = 0; i < kLanes; ++i) query[i] = begin + static_cast<int32_t>(lane) + i;
    memcpy(&lowest, first + lane, sizeof lowest);
    return (query >= static_cast<int32_t>(key)) & (lowest <= static_cast<int32_t>(key));
  }
};

// What causality leaves of the products of a block of queries with one of keys: all, or what is below the diagonal.
struct Reach {
  bool is_diagonal;

  // The first query that sees key `row` of the block.
  int64_t first_query(int64_t row) const { return is_diagonal ? row : 0; }
  // How many keys of the block those queries see that are before query `end`.
  int64_t num_keys(int64_t end) const { return is_diagonal ? end : kBlock; }
};

// 2^x for x <= 0 with a relative error of 1e-4, a twentieth of what rounding to bfloat16 may do to the result; exact at
// whole numbers. NaN stays NaN. The polynomial is the minimax one of those that are 1 at 0.
inline Vec exp2(Vec x) {
  x = max(splat(-160.0f), x);
  const Vec n = bit_cast<Vec>(_mm512_roundscale_ps(bit_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
  const Vec r = x - n;
  Vec p = r * 0.0550089314f + 0.2422109622f;
  p = p * r + 0.6932829274f;
  return bit_cast<Vec>(_mm512_scalef_ps(bit_cast<__m512>(p * r + 1.0f), bit_cast<__m512>(n)));  // through subnormals
}

}  // namespace megalite::MEGALITE_ISA
