// The CPU kernels, declared for the instruction set MEGALITE_ISA. Tensors are contiguous; void pointers are to elements
// of the type that `dtype` names (dtype.h), float pointers to float32 whatever that type is. Arithmetic is in float32.
// Sizes and layouts are checked in megalite/ops, whose files say what each op computes.
#include <cstdint>

namespace megalite::MEGALITE_ISA {

// Norms of [rows, cols]. `residual` may be null; else `total` receives x + residual, and `dtotal` (may be null) is the
// gradient that arrives there. `partial` has room for 2 * blocks rows (LayerNorm) or `blocks` (RMSNorm); see rows.h.
void rms_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, float* scale,
                      int64_t rows, int64_t cols, double epsilon, int dtype);
void rms_norm_backward(void* dx, float* dweight, float* partial, const void* dy, const void* dtotal, const void* x,
                       const void* weight, const float* scale, int64_t rows, int64_t cols, int64_t blocks, int dtype);
void layer_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight,
                        const void* bias, float* mean, float* scale, int64_t rows, int64_t cols, double epsilon,
                        int dtype);
void layer_norm_backward(void* dx, float* dweight, float* dbias, float* partial, const void* dy, const void* dtotal,
                         const void* x, const void* weight, const float* mean, const float* scale, int64_t rows,
                         int64_t cols, int64_t blocks, int dtype);

// Activations of [rows, cols] + bias [cols] (may be null; then so are `dbias` and `partial` [blocks, cols]). For
// SwiGLU, `x` and its bias are 2 * cols wide, gate then up, and `partial` is [blocks, 2 * cols].
void bias_gelu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void bias_gelu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                        int64_t rows, int64_t cols, int64_t blocks, int dtype);
void squared_relu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void squared_relu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                           int64_t rows, int64_t cols, int64_t blocks, int dtype);
void swiglu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void swiglu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                     int64_t rows, int64_t cols, int64_t blocks, int dtype);

// Softmax of scale * x over rows of `keys`; row r belongs to query r % queries. Hidden are the keys whose byte of
// `mask` [masks, queries, keys] (may be null) is not zero, where `rows_per_mask` rows share a mask, or, if `causal`,
// those after the query's own, the last query seeing all. A row that sees nothing is zero.
void softmax_forward(void* y, const void* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys,
                     int64_t rows_per_mask, int causal, double scale, int dtype);
void softmax_backward(void* dx, const void* dy, const void* y, int64_t rows, int64_t queries, int64_t keys, int causal,
                      double scale, int dtype);

// Causal attention. qkv and its gradient are [length, batch, groups, heads + 2, dim]: of each group, `heads` queries,
// its key and its value; y and its gradient are [length, batch, groups, heads, dim]; `softmax`
// [batch, groups, heads, length, 2] is for the backward pass. Query i sees keys first[batch, i] (null: 0) to i.
void attention_forward(void* y, float* softmax, const void* qkv, const int64_t* first, int64_t length, int64_t batch,
                       int64_t groups, int64_t heads, int64_t dim, double scale, int dtype);
void attention_backward(void* dqkv, const void* dy, const void* y, const void* qkv, const float* softmax,
                        const int64_t* first, int64_t length, int64_t batch, int64_t groups, int64_t heads,
                        int64_t dim, double scale, int dtype);

// Turns the first 2 * half channels of the first `rotated_heads` heads of each group of x [positions, groups, heads,
// head_dim] by the angles of cos and sin [positions, half], times `direction` (1 or -1), into y, which may be x.
void rotary(void* y, const void* x, const float* cos, const float* sin, int64_t positions, int64_t groups,
            int64_t heads, int64_t rotated_heads, int64_t head_dim, int64_t half, int interleaved, double direction,
            int dtype);

// y = dropout(x + bias) + residual, where bias and residual may be null. Element j of row r is element
// row_numbers[r] * cols + j of the Philox stream of the key; it is dropped if its half of a word is below `threshold`,
// and else multiplied by `scale`. With a threshold of 0 there is no mask. `dbias` and `partial` [blocks, cols] may be
// null.
void dropout_residual_forward(void* y, const void* x, const void* bias, const void* residual,
                              const int64_t* row_numbers, int64_t rows, int64_t cols, int64_t key0, int64_t key1,
                              int64_t threshold, double scale, int dtype);
void dropout_residual_backward(void* dx, float* dbias, float* partial, const void* dy, const int64_t* row_numbers,
                               int64_t rows, int64_t cols, int64_t blocks, int64_t key0, int64_t key1,
                               int64_t threshold, double scale, int dtype);

// Cross-entropy of logits [rows, cols], of which the first `vocabulary` columns count. `target` is a column, or -1
// where another rank holds it. The largest logit of each row; then with the largest over all ranks, out [3, rows]: the
// sums of exp(logit - peak), logit - peak of the target, and the sum of logit - peak; and at last the gradient in the
// place of the logits: weight * (exp(logit - peak) / total - on_all - on_target at the target).
void cross_entropy_peaks(float* peak, const void* logits, int64_t rows, int64_t cols, int64_t vocabulary, int dtype);
void cross_entropy_sums(float* out, const void* logits, const float* peak, const int64_t* target, int64_t rows,
                        int64_t cols, int64_t vocabulary, int dtype);
void cross_entropy_gradient(void* logits, const float* peak, const float* total, const float* weight,
                            const int64_t* target, int64_t rows, int64_t cols, int64_t vocabulary, double on_target,
                            double on_all, int dtype);

// One update: g = grad * grad_factor, moments of g, param * param_factor - rate * mean / (root_factor *
// sqrt(mean_square) + epsilon), also stored to `copy` (may be null) in the type of `dtype`.
void adamw(float* param, void* copy, const float* grad, float* mean, float* mean_square, int64_t size,
           double grad_factor, double param_factor, double beta1, double beta2, double epsilon, double root_factor,
           double rate, int dtype);

// total += the sums over the rows of x; `partial`: [blocks, cols].
void add_column_sums(float* total, float* partial, const void* x, int64_t rows, int64_t cols, int64_t blocks,
                     int dtype);
// total += x, element by element.
void add_elements(float* total, const void* x, int64_t size, int dtype);

// The sum of squares of each block of 65536 elements. Unless `factor` is 1, x is multiplied by it first, in place.
void sum_of_squares(double* partial, void* x, int64_t size, double factor, int dtype);

// Normal numbers of deviation `std` for `runs` runs of `length` consecutive elements of the Philox stream of the key.
void normal_fill(void* out, const int64_t* starts, int64_t runs, int64_t length, double std, int64_t key0, int64_t key1,
                 int dtype);

}  // namespace megalite::MEGALITE_ISA
