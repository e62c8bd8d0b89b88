// Causal attention, forward, as in attention_forward.cpp, by products of pairs. Weights are rounded to bfloat16 before
// they multiply values; their sum is of those that are not rounded.
#include "cpu/kernels/avx512_bf16/attention.h"

namespace megalite::MEGALITE_ISA {
namespace {

constexpr float kLow = -1e30f;  // less than any score, yet finite, so that differences are numbers

struct Forward {
  Pair* keys;                       // [padded, depth]
  Pair* values;                     // [padded / 2, width]
  Pair* queries;                    // [depth, kBlock]
  float* scores;                    // [kBlock, kBlock], by key
  Pair* weights;                    // [kHalfBlock, kBlock], of two keys: exp(score - top)
  float* weighted;                  // [kBlock, width]: sums of weight * value
  float *tops, *totals, *factors;   // [kBlock]: the largest scores, the sums of weights, and what scales them down
  int64_t size;

  Forward(float* room, const Attention& shape) {
    Cut cut{room};
    keys = cut.take<Pair>(shape.padded() * depth_of(shape));
    values = cut.take<Pair>(shape.padded() / 2 * shape.width());
    queries = cut.take<Pair>(depth_of(shape) * kBlock);
    scores = cut.take<float>(kBlock * kBlock);
    weights = cut.take<Pair>(kHalfBlock * kBlock);
    weighted = cut.take<float>(kBlock * shape.width());
    tops = cut.take<float>(kBlock);
    totals = cut.take<float>(kBlock);
    factors = cut.take<float>(kBlock);
    size = cut.used;
  }

  void clear(const Attention& shape) const {
    memset(weighted, 0, kBlock * shape.width() * sizeof(float));
    memset(totals, 0, kBlock * sizeof(float));
    for (int64_t query = 0; query < kBlock; ++query) tops[query] = kLow;
  }
};

// Turns the scores of kLanes queries and `num_keys` keys into weights, and brings their sums to the new tops.
template <bool kAll>
void absorb(const Forward& room, const Sight& sight, float scale, int64_t key, int64_t lane, int64_t num_keys) {
  const float* scores = room.scores + lane;
  const Vec old = load(room.tops + lane);
  Vec tops[2] = {old, old}, totals[2] = {};
  for (int64_t row = 0; row < num_keys; row += 2) {
    for (int i = 0; i < 2; ++i) {
      Vec score = load(scores + (row + i) * kBlock);
      if (!kAll) score = select(sight.of(lane, key + row + i), score, splat(kLow));
      tops[i] = max(tops[i], score);
    }
  }
  const Vec top = max(tops[0], tops[1]), factor = exp2((old - top) * scale);
  for (int64_t row = 0; row < num_keys; row += 2) {
    Vec weights[2];
    for (int i = 0; i < 2; ++i) {
      weights[i] = exp2(load(scores + (row + i) * kBlock) * scale - top * scale);
      if (!kAll) weights[i] = select(sight.of(lane, key + row + i), weights[i], Vec{});
      totals[i] += weights[i];
    }
    store(room.weights + row / 2 * kBlock + lane, round_pairs(weights[0], weights[1]));
  }
  store(room.tops + lane, top);
  store(room.factors + lane, factor);
  store(room.totals + lane, load(room.totals + lane) * factor + (totals[0] + totals[1]));
}

void scale_down(const Forward& room, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    if (room.factors[row] == 1.0f) continue;
    float* sums = room.weighted + row * width;
    for (int64_t i = 0; i < width; i += kLanes) store(sums + i, load(sums + i) * room.factors[row]);
  }
}

// A block of queries goes past one of keys.
void go_past(const Forward& room, const Queries& queries, const Sight& sight, const Attention& shape, int64_t key) {
  const int64_t depth = depth_of(shape), width = shape.width();
  const float scale = shape.scale * kLog2E;
  const Reach reach{key == queries.begin};
  for (int64_t row = 0; row < kBlock; row += kRowStep) {
    const int64_t first = reach.first_query(row) / kLanes * kLanes;
    product<false>(room.scores + row * kBlock + first, kBlock, PairFactor{room.keys + (key + row) * depth, depth, 1},
                   room.queries + first, kBlock, kRowStep, kBlock - first, depth);
  }
  const bool all = queries.see_all(key);
  for (int64_t lane = 0; lane < kBlock; lane += kLanes) {
    const int64_t num_keys = reach.num_keys(lane + kLanes);
    if (all) absorb<true>(room, sight, scale, key, lane, num_keys);
    else absorb<false>(room, sight, scale, key, lane, num_keys);
  }
  scale_down(room, queries.rows, width);
  for (int64_t row = 0; row < queries.rows; row += kRowStep) {
    product<true>(room.weighted + row * width, width, PairFactor{room.weights + row, 1, kBlock},
                  room.values + key / 2 * width, width, kRowStep, width, reach.num_keys(row + kRowStep) / 2);
  }
}

void finish(const Forward& room, const Queries& queries, const Attention& shape, Rows<Bfloat16> y, Softmax* softmax) {
  for (int64_t row = 0; row < queries.count; ++row) {
    const float factor = 1.0f / room.totals[row];
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      store(y[queries.begin + row] + i, load(room.weighted + row * shape.width() + i, lanes) * factor, lanes);
    });
    softmax[queries.begin + row] = {room.tops[row] * (shape.scale * kLog2E), factor};
  }
}

}  // namespace

int64_t forward_room(const Attention& shape, Bfloat16) { return Forward(nullptr, shape).size; }

void forward_head(Bfloat16* y, Softmax* softmax, const Bfloat16* qkv, const Attention& shape, int64_t task,
                  float* floats) {
  const Forward room(floats, shape);
  pack_rows(room.keys, part_of(qkv, shape, task, kKey), shape, 0, shape.length, shape.padded());
  pack_pairs_of_rows(room.values, part_of(qkv, shape, task, kValue), shape, 0, shape.length, shape.padded());
  for (int64_t begin = 0; begin < shape.length; begin += kBlock) {
    const Queries queries(shape, task, begin);
    const Sight sight(queries);
    pack_columns(room.queries, part_of(qkv, shape, task, kQuery), shape, begin, queries.count);
    room.clear(shape);
    for (int64_t key = queries.first_block(); key <= begin; key += kBlock) go_past(room, queries, sight, shape, key);
    finish(room, queries, shape, output_of(y, shape, task), softmax + task * shape.length);
  }
}

}  // namespace megalite::MEGALITE_ISA
