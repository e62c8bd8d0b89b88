// Causal attention, backward (Dao et al. 2022): the weights of each block are computed again from the queries and keys.
// Each query head sums its own gradient of keys and values, and those of a group are added in order, so that nothing
// depends on the number of threads.
#include "cpu/kernels.h"
#include "cpu/kernels/attention_grad.h"
#if defined(__AVX512BF16__)
#include "cpu/kernels/avx512_bf16/attention.h"  // its backward_head for bfloat16 goes before the template
#endif

namespace megalite::MEGALITE_ISA {
namespace {

// All keys and values of one head, packed as the products need them, and the sums of their gradients.
struct Keys {
  float *rows, *columns;      // keys as [padded, width], and as [dim, kBlock] for each block
  float* value_columns;       // values as [dim, kBlock] for each block
  float *key_grad, *value_grad;  // [padded, width]

  static int64_t size(const Attention& shape) { return shape.padded() * (3 * shape.width() + 2 * shape.dim); }
  Keys(float* room, const Attention& shape)
      : rows(room),
        columns(rows + shape.padded() * shape.width()),
        value_columns(columns + shape.padded() * shape.dim),
        key_grad(value_columns + shape.padded() * shape.dim),
        value_grad(key_grad + shape.padded() * shape.width()) {}
};

// One block of queries.
struct Block {
  float *query, *grad;      // [kBlock, width]: scaled queries; gradient of the output
  float* query_grad;        // [kBlock, width]
  float *weights, *scores;  // [kBlock, kBlock]: softmax; gradient of the scores
  float* inner;             // [kBlock]: products of the output and its gradient
  Softmax* softmax;         // [kBlock]

  static int64_t size(const Attention& shape) { return kBlock * (3 * shape.width() + 2 * kBlock + 3); }
  Block(float* room, const Attention& shape)
      : query(room),
        grad(query + kBlock * shape.width()),
        query_grad(grad + kBlock * shape.width()),
        weights(query_grad + kBlock * shape.width()),
        scores(weights + kBlock * kBlock),
        inner(scores + kBlock * kBlock),
        softmax(reinterpret_cast<Softmax*>(inner + kBlock)) {}
};

template <typename T>
void load_block(const Block& block, const Queries& queries, const Attention& shape, Rows<const T> query,
                Rows<const T> dy, Rows<const T> y, const Softmax* softmax) {
  pack(block.query, query, shape, queries.begin, queries.count, queries.rows, shape.scale);
  pack(block.grad, dy, shape, queries.begin, queries.count, queries.rows, 1.0f);
  memset(block.query_grad, 0, kBlock * shape.width() * sizeof(float));
  for (int64_t row = 0; row < queries.rows; ++row) {
    block.inner[row] = 0.0f;
    block.softmax[row] = {0.0f, 0.0f};  // of rows beyond the last query
    if (row >= queries.count) continue;
    Vec products{};
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      products += load(block.grad + row * shape.width() + i, lanes) * load(y[queries.begin + row] + i, lanes);
    });
    block.inner[row] = sum(products);
    block.softmax[row] = softmax[queries.begin + row];
  }
}

// From scores and the gradient of the weights to the weights and the gradient of the scores.
inline void differentiate_row(const Block& block, int64_t row, const Queries& queries, int64_t key, bool all) {
  float *weights = block.weights + row * kBlock, *scores = block.scores + row * kBlock;
  const Softmax softmax = block.softmax[row];
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    Vec weight = exp(load(weights + i) - softmax.top) * softmax.factor;
    if (!all) weight = select(queries.visible(row, key + i), weight, Vec{});
    store(weights + i, weight);
    store(scores + i, weight * (load(scores + i) - block.inner[row]));
  }
}

inline void go_past(const Block& block, const Keys& keys, const Queries& queries, const Attention& shape, int64_t key) {
  const int64_t width = shape.width(), rows = queries.rows;
  product<false>(block.weights, kBlock, {block.query, width, 1}, keys.columns + key * shape.dim, kBlock, rows, kBlock,
                 shape.dim);
  product<false>(block.scores, kBlock, {block.grad, width, 1}, keys.value_columns + key * shape.dim, kBlock, rows,
                 kBlock, shape.dim);
  const bool all = queries.see_all(key);
  for (int64_t row = 0; row < rows; ++row) differentiate_row(block, row, queries, key, all);
  product<true>(keys.value_grad + key * width, width, {block.weights, 1, kBlock}, block.grad, width, kBlock, width,
                rows);
  product<true>(keys.key_grad + key * width, width, {block.scores, 1, kBlock}, block.query, width, kBlock, width, rows);
  product<true>(block.query_grad, width, {block.scores, kBlock, 1}, keys.rows + key * width, width, rows, width,
                kBlock);
}

template <typename T>
int64_t backward_room(const Attention& shape, T) {
  return Keys::size(shape) + Block::size(shape);
}

template <typename T>
void backward_head(const GradTensors<T>& tensors, const Attention& shape, int64_t task, float* room) {
  const Keys keys(room, shape);
  const Block block(room + Keys::size(shape), shape);
  const T* qkv = tensors.qkv;
  pack(keys.rows, part_of(qkv, shape, task, kKey), shape, 0, shape.length, shape.padded(), 1.0f);
  pack_transposed(keys.columns, part_of(qkv, shape, task, kKey), shape);
  pack_transposed(keys.value_columns, part_of(qkv, shape, task, kValue), shape);
  memset(keys.key_grad, 0, 2 * shape.padded() * shape.width() * sizeof(float));
  for (int64_t begin = 0; begin < shape.length; begin += kBlock) {
    const Queries queries(shape, task, begin);
    load_block(block, queries, shape, part_of(qkv, shape, task, kQuery), output_of(tensors.dy, shape, task),
               output_of(tensors.y, shape, task), tensors.softmax + task * shape.length);
    for (int64_t key = queries.first_block(); key <= begin; key += kBlock) go_past(block, keys, queries, shape, key);
    unpack(part_of(tensors.dqkv, shape, task, kQuery), block.query_grad, shape, begin, queries.count, shape.scale);
  }
  put_key_grads(tensors, shape, task, keys.key_grad, keys.value_grad);
}

// Adds up what the heads of each group have to say of its keys and values.
template <typename T>
void sum_heads(const GradTensors<T>& tensors, const Attention& shape) {
  const int64_t width = shape.width(), size = shape.padded() * width;
  for_rows(shape.batch * shape.groups * shape.length, shape.heads * shape.dim, [=](int64_t row) {
    const int64_t task = row / shape.length * shape.heads, position = row % shape.length;
    for (int64_t part = 0; part < 2; ++part) {
      T* to = part_of(tensors.dqkv, shape, task, part == 0 ? kKey : kValue)[position];
      const float* from = tensors.partial + (2 * task + part) * size + position * width;
      for_lanes(shape.dim, [=](int64_t i, auto lanes) {
        Vec total{};
        for (int64_t head = 0; head < shape.heads; ++head) total += load(from + 2 * head * size + i, lanes);
        store(to + i, total, lanes);
      });
    }
  });
}

}  // namespace

void attention_backward(void* dqkv, const void* dy, const void* y, const void* qkv, const float* softmax,
                        const int64_t* first, int64_t length, int64_t batch, int64_t groups, int64_t heads,
                        int64_t dim, double scale, int dtype) {
  const Attention shape{length, batch, groups, heads, dim, first, static_cast<float>(scale)};
  Room partial(heads == 1 ? 0 : 2 * shape.tasks() * shape.padded() * shape.width());
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const GradTensors<T> tensors{(T*)dqkv,       (const T*)dy, (const T*)y, (const T*)qkv, (const Softmax*)softmax,
                                 partial.data};
    for_heads(shape, backward_room(shape, T{}),
              [=](int64_t task, float* room) { backward_head(tensors, shape, task, room); });
    if (heads > 1) sum_heads(tensors, shape);
  });
}

}  // namespace megalite::MEGALITE_ISA
