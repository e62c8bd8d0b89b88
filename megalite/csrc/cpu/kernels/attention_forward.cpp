// Causal attention without its matrix of scores (Dao et al. 2022), forward: blocks of queries go past blocks of keys,
// and what they have summed so far is scaled down whenever a larger score appears.
#include "cpu/kernels.h"
#include "cpu/kernels/attention.h"
#if defined(__AVX512BF16__)
#include "cpu/kernels/avx512_bf16/attention.h"  // its forward_head for bfloat16 goes before the template
#endif

namespace megalite::MEGALITE_ISA {
namespace {

constexpr float kLow = -1e30f;  // less than any score, yet finite, so that differences are numbers

// One block of queries, and its sums over the keys seen so far.
struct Sums {
  float* query;     // [kBlock, width], scaled
  float* scores;    // [kBlock, kBlock]
  float* weighted;  // [kBlock, width]: of exp(score - top) * value
  float* totals;    // [kBlock, kLanes]: of exp(score - top), lane by lane
  float* tops;      // [kBlock]: the largest scores

  static int64_t size(const Attention& shape) { return kBlock * (2 * shape.width() + kBlock + kLanes + 1); }
  Sums(float* room, const Attention& shape)
      : query(room),
        scores(query + kBlock * shape.width()),
        weighted(scores + kBlock * kBlock),
        totals(weighted + kBlock * shape.width()),
        tops(totals + kBlock * kLanes) {}

  void clear(const Attention& shape) {
    memset(weighted, 0, kBlock * shape.width() * sizeof(float));
    memset(totals, 0, kBlock * kLanes * sizeof(float));
    for (int64_t row = 0; row < kBlock; ++row) tops[row] = kLow;
  }
};

// Turns a row of scores into exp(score - top), and brings the sums to the new top.
inline void absorb_row(const Sums& sums, int64_t row, int64_t width, const Queries& queries, int64_t key, bool all) {
  float* scores = sums.scores + row * kBlock;
  Vec tops = splat(sums.tops[row]);
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    Vec score = load(scores + i);
    if (!all) {
      score = select(queries.visible(row, key + i), score, splat(-__builtin_inff()));
      store(scores + i, score);
    }
    tops = max(tops, score);
  }
  const Vec top = all_max(tops);
  const Vec factor = exp(splat(sums.tops[row]) - top);
  Vec totals = load(sums.totals + row * kLanes) * factor;
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Vec term = exp(load(scores + i) - top);
    store(scores + i, term);
    totals += term;
  }
  store(sums.totals + row * kLanes, totals);
  sums.tops[row] = top[0];
  float* weighted = sums.weighted + row * width;
  for (int64_t i = 0; i < width; i += kLanes) store(weighted + i, load(weighted + i) * factor);
}

template <typename T>
void finish(const Sums& sums, const Queries& queries, const Attention& shape, Rows<T> y, Softmax* softmax) {
  for (int64_t row = 0; row < queries.count; ++row) {
    const float factor = 1.0f / sum(load(sums.totals + row * kLanes));
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      store(y[queries.begin + row] + i, load(sums.weighted + row * shape.width() + i, lanes) * factor, lanes);
    });
    softmax[queries.begin + row] = {sums.tops[row], factor};
  }
}

template <typename T>
int64_t forward_room(const Attention& shape, T) {
  return shape.padded() * (shape.dim + shape.width()) + Sums::size(shape);
}

template <typename T>
void forward_head(T* y, Softmax* softmax, const T* qkv, const Attention& shape, int64_t task, float* room) {
  const int64_t width = shape.width();
  float* keys = room;                                  // [dim, kBlock] for each block
  float* values = keys + shape.padded() * shape.dim;   // [padded, width]
  Sums sums(values + shape.padded() * width, shape);
  pack_transposed(keys, part_of(qkv, shape, task, kKey), shape);
  pack(values, part_of(qkv, shape, task, kValue), shape, 0, shape.length, shape.padded(), 1.0f);
  for (int64_t begin = 0; begin < shape.length; begin += kBlock) {
    const Queries queries(shape, task, begin);
    pack(sums.query, part_of(qkv, shape, task, kQuery), shape, begin, queries.count, queries.rows, shape.scale);
    sums.clear(shape);
    for (int64_t key = queries.first_block(); key <= begin; key += kBlock) {
      const Factor query{sums.query, width, 1}, weights{sums.scores, kBlock, 1};
      product<false>(sums.scores, kBlock, query, keys + key * shape.dim, kBlock, queries.rows, kBlock, shape.dim);
      const bool all = queries.see_all(key);
      for (int64_t row = 0; row < queries.rows; ++row) absorb_row(sums, row, width, queries, key, all);
      product<true>(sums.weighted, width, weights, values + key * width, width, queries.rows, width, kBlock);
    }
    finish(sums, queries, shape, output_of(y, shape, task), softmax + task * shape.length);
  }
}

}  // namespace

void attention_forward(void* y, float* softmax, const void* qkv, const int64_t* first, int64_t length, int64_t batch,
                       int64_t groups, int64_t heads, int64_t dim, double scale, int dtype) {
  const Attention shape{length, batch, groups, heads, dim, first, static_cast<float>(scale)};
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    for_heads(shape, forward_room(shape, T{}), [=](int64_t task, float* room) {
      forward_head((T*)y, (Softmax*)softmax, (const T*)qkv, shape, task, room);
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
