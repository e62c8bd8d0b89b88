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

// From the scores of kRowStep keys, and the gradient of their weights, to the weights and the gradient of the scores.
template <bool kAll>
void differentiate(const Backward& room, const Sight& sight, float scale, int64_t key, int64_t row) {
  for (int64_t pair = 0; pair < kRowStep; pair += 2) {
    for (int64_t lane = 0; lane < kBlock; lane += 2 * kLanes) {
      UintVec grads[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const int64_t strip = (pair + i) * kBlock + lane, square = ((row + pair + i) * kBlock + lane) / 2;
        Vec weight[2], grad[2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          const int64_t query = lane + j * kLanes, at = strip + j * kLanes;
          weight[j] = exp2(load(room.scores + at) * (scale * kLog2E) - load(room.tops + query));
          weight[j] *= load(room.factors + query);
          if (!kAll) weight[j] = select(sight.of(query, key + row + pair + i), weight[j], Vec{});
          grad[j] = weight[j] * (load(room.weight_grads + at) * scale - load(room.inners + query));
        }
        grads[i] = round(grad[0], grad[1]);
        store(room.weights + square, round(weight[0], weight[1]));
        store(room.score_grads + square, grads[i]);
      }
      Pair* pairs = room.score_grad_pairs + (row + pair) / 2 * kBlock + lane;
      store(pairs, zip_low(grads[0], grads[1]));
      store(pairs + kLanes, zip_high(grads[0], grads[1]));
    }
  }
}

void go_past(const Backward& room, const Queries& queries, const Sight& sight, const Attention& shape, int64_t key) {
  const int64_t depth = depth_of(shape), width = shape.width();
  const bool all = queries.see_all(key);
  for (int64_t row = 0; row < kBlock; row += kRowStep) {
    const PairFactor keys{room.keys + (key + row) * depth, depth, 1};
    const PairFactor values{room.values + (key + row) * depth, depth, 1};
    product<false>(room.scores, kBlock, keys, room.queries, kBlock, kRowStep, kBlock, depth);
    product<false>(room.weight_grads, kBlock, values, room.grads, kBlock, kRowStep, kBlock, depth);
    if (all) differentiate<true>(room, sight, shape.scale, key, row);
    else differentiate<false>(room, sight, shape.scale, key, row);
  }
  product<true>(room.value_grad + key * width, width, PairFactor{room.weights, kHalfBlock, 1}, room.grad_pairs, width,
                kBlock, width, kHalfBlock);
  product<true>(room.key_grad + key * width, width, PairFactor{room.score_grads, kHalfBlock, 1}, room.query_pairs,
                width, kBlock, width, kHalfBlock);
  product<true>(room.query_grad, width, PairFactor{room.score_grad_pairs, 1, kBlock}, room.key_pairs + key / 2 * width,
                width, queries.rows, width, kHalfBlock);
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
