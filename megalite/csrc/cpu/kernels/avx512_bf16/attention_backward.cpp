// Causal attention, backward, as in attention_backward.cpp, by products of pairs. Weights and the gradient of scores
// are rounded to bfloat16 before they multiply anything.
#include "cpu/kernels/avx512_bf16/attention.h"

namespace megalite::MEGALITE_ISA {
namespace {

struct Backward {
  // All keys and values of a head, and their gradients.
  Pair *keys, *values;            // [padded, depth]
  Pair* key_pairs;                // [padded / 2, width], of two keys
  float *key_grad, *value_grad;   // [padded, width]
  // A block of queries with the gradient of the output.
  Pair *queries, *grads;              // [depth, kBlock]
  Pair *query_pairs, *grad_pairs;     // [kHalfBlock, width], of two queries
  float* query_grad;                  // [kBlock, width]
  float *tops, *factors, *inners;     // [kBlock]: the softmax; products of the output and its gradient, scaled
  // Of this block with one of keys.
  float *scores, *weight_grads;       // [kRowStep, kBlock], by key
  Pair *weights, *score_grads;        // [kBlock, kHalfBlock], by key, of two queries
  Pair* score_grad_pairs;             // [kHalfBlock, kBlock], of two keys
  int64_t size;

  Backward(float* room, const Attention& shape) {
    Cut cut{room};
    const int64_t depth = depth_of(shape), width = shape.width(), padded = shape.padded();
    keys = cut.take<Pair>(padded * depth);
    values = cut.take<Pair>(padded * depth);
    key_pairs = cut.take<Pair>(padded / 2 * width);
    key_grad = cut.take<float>(padded * width);
    value_grad = cut.take<float>(padded * width);
    queries = cut.take<Pair>(depth * kBlock);
    grads = cut.take<Pair>(depth * kBlock);
    query_pairs = cut.take<Pair>(kHalfBlock * width);
    grad_pairs = cut.take<Pair>(kHalfBlock * width);
    query_grad = cut.take<float>(kBlock * width);
    tops = cut.take<float>(kBlock);
    factors = cut.take<float>(kBlock);
    inners = cut.take<float>(kBlock);
    scores = cut.take<float>(kRowStep * kBlock);
    weight_grads = cut.take<float>(kRowStep * kBlock);
    weights = cut.take<Pair>(kBlock * kHalfBlock);
    score_grads = cut.take<Pair>(kBlock * kHalfBlock);
    score_grad_pairs = cut.take<Pair>(kHalfBlock * kBlock);
    size = cut.used;
  }
};

void load_softmax(const Backward& room, const Queries& queries, const Attention& shape, Rows<const Bfloat16> dy,
                  Rows<const Bfloat16> y, const Softmax* softmax) {
  for (int64_t row = 0; row < kBlock; ++row) {
    room.tops[row] = room.factors[row] = room.inners[row] = 0.0f;  // of rows beyond the last query
    if (row >= queries.count) continue;
    const int64_t query = queries.begin + row;
    Vec products{};
    for_lanes(shape.dim,
              [&](int64_t i, auto lanes) { products += load(dy[query] + i, lanes) * load(y[query] + i, lanes); });
    room.inners[row] = sum(products) * shape.scale;
    room.tops[row] = softmax[query].top;
    room.factors[row] = softmax[query].factor;
  }
}

// From the scores of key `row` of the block at `key`, and the gradient of its weights, to the weights and the gradient
// of the scores, for 2 * kLanes queries from `first` on. Returns the latter.
template <bool kAll>
UintVec differentiate_key(const Backward& room, const Sight& sight, float scale, int64_t key, int64_t row,
                          int64_t first) {
  Vec weights[2], grads[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const int64_t lane = first + i * kLanes, at = row % kRowStep * kBlock + lane;
    weights[i] = exp2(load(room.scores + at) * (scale * kLog2E) - load(room.tops + lane)) * load(room.factors + lane);
    if (!kAll) weights[i] = select(sight.of(lane, key + row), weights[i], Vec{});
    grads[i] = weights[i] * (load(room.weight_grads + at) * scale - load(room.inners + lane));
  }
  const int64_t pair = row * kHalfBlock + first / 2;
  const UintVec grad = round(grads[0], grads[1]);
  store(room.weights + pair, round(weights[0], weights[1]));
  store(room.score_grads + pair, grad);
  return grad;
}

// The same for kRowStep keys and the queries from `first` on.
template <bool kAll>
void differentiate(const Backward& room, const Sight& sight, float scale, int64_t key, int64_t row, int64_t first) {
  for (const int64_t end = row + kRowStep; row < end; row += 2) {
    for (int64_t lane = first; lane < kBlock; lane += 2 * kLanes) {
      const UintVec one = differentiate_key<kAll>(room, sight, scale, key, row, lane);
      const UintVec other = differentiate_key<kAll>(room, sight, scale, key, row + 1, lane);
      Pair* pairs = room.score_grad_pairs + row / 2 * kBlock + lane;
      store(pairs, zip_low(one, other));
      store(pairs + kLanes, zip_high(one, other));
    }
  }
}

void go_past(const Backward& room, const Queries& queries, const Sight& sight, const Attention& shape, int64_t key) {
  const int64_t depth = depth_of(shape), width = shape.width();
  const bool all = queries.see_all(key);
  const Reach reach{key == queries.begin};
  for (int64_t row = 0; row < kBlock; row += kRowStep) {
    const int64_t first = reach.first_query(row) / (2 * kLanes) * (2 * kLanes), count = kBlock - first;
    const PairFactor keys{room.keys + (key + row) * depth, depth, 1};
    const PairFactor values{room.values + (key + row) * depth, depth, 1};
    product<false>(room.scores + first, kBlock, keys, room.queries + first, kBlock, kRowStep, count, depth);
    product<false>(room.weight_grads + first, kBlock, values, room.grads + first, kBlock, kRowStep, count, depth);
    if (all) differentiate<true>(room, sight, shape.scale, key, row, first);
    else differentiate<false>(room, sight, shape.scale, key, row, first);
  }
  for (int64_t row = 0; row < kBlock; row += kRowStep) {
    const int64_t pair = reach.first_query(row) / 2, square = row * kHalfBlock + pair, to = (key + row) * width;
    product<true>(room.value_grad + to, width, PairFactor{room.weights + square, kHalfBlock, 1},
                  room.grad_pairs + pair * width, width, kRowStep, width, kHalfBlock - pair);
    product<true>(room.key_grad + to, width, PairFactor{room.score_grads + square, kHalfBlock, 1},
                  room.query_pairs + pair * width, width, kRowStep, width, kHalfBlock - pair);
  }
  for (int64_t row = 0; row < queries.rows; row += kRowStep) {
    product<true>(room.query_grad + row * width, width, PairFactor{room.score_grad_pairs + row, 1, kBlock},
                  room.key_pairs + key / 2 * width, width, kRowStep, width, reach.num_keys(row + kRowStep) / 2);
  }
}

}  // namespace

int64_t backward_room(const Attention& shape, Bfloat16) { return Backward(nullptr, shape).size; }

void backward_head(const GradTensors<Bfloat16>& tensors, const Attention& shape, int64_t task, float* floats) {
  const Backward room(floats, shape);
  const auto query = part_of(tensors.qkv, shape, task, kQuery), key = part_of(tensors.qkv, shape, task, kKey);
  const auto dy = output_of(tensors.dy, shape, task), y = output_of(tensors.y, shape, task);
  pack_rows(room.keys, key, shape, 0, shape.length, shape.padded());
  pack_rows(room.values, part_of(tensors.qkv, shape, task, kValue), shape, 0, shape.length, shape.padded());
  pack_pairs_of_rows(room.key_pairs, key, shape, 0, shape.length, shape.padded());
  memset(room.key_grad, 0, shape.padded() * shape.width() * sizeof(float));
  memset(room.value_grad, 0, shape.padded() * shape.width() * sizeof(float));
  for (int64_t begin = 0; begin < shape.length; begin += kBlock) {
    const Queries queries(shape, task, begin);
    const Sight sight(queries);
    pack_columns(room.queries, query, shape, begin, queries.count);
    pack_columns(room.grads, dy, shape, begin, queries.count);
    pack_pairs_of_rows(room.query_pairs, query, shape, begin, queries.count, kBlock);
    pack_pairs_of_rows(room.grad_pairs, dy, shape, begin, queries.count, kBlock);
    load_softmax(room, queries, shape, dy, y, tensors.softmax + task * shape.length);
    memset(room.query_grad, 0, kBlock * shape.width() * sizeof(float));
    for (int64_t block = queries.first_block(); block <= begin; block += kBlock) {
      go_past(room, queries, sight, shape, block);
    }
    unpack(part_of(tensors.dqkv, shape, task, kQuery), room.query_grad, shape, begin, queries.count, 1.0f);
  }
  put_key_grads(tensors, shape, task, room.key_grad, room.value_grad);
}

}  // namespace megalite::MEGALITE_ISA
