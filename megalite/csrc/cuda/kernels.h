// The CUDA kernels: the functions of cpu/kernels.h, which says what they compute, by the same names and with the same
// arguments, and a stream on which they are launched.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace megalite::cuda {

using Stream = CUstream_st*;

void rms_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, float* scale,
                      int64_t rows, int64_t cols, double epsilon, int dtype, Stream stream);
void rms_norm_backward(void* dx, float* dweight, float* partial, const void* dy, const void* dtotal, const void* x,
                       const void* weight, const float* scale, int64_t rows, int64_t cols, int64_t blocks, int dtype,
                       Stream stream);
void layer_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, const void* bias,
                        float* mean, float* scale, int64_t rows, int64_t cols, double epsilon, int dtype, Stream
                        stream);
void layer_norm_backward(void* dx, float* dweight, float* dbias, float* partial, const void* dy, const void* dtotal,
                         const void* x, const void* weight, const float* mean, const float* scale, int64_t rows, int64_t
                         cols, int64_t blocks, int dtype, Stream stream);

void bias_gelu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype, Stream stream);
void bias_gelu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias, int64_t
                        rows, int64_t cols, int64_t blocks, int dtype, Stream stream);
void squared_relu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype, Stream
                          stream);
void squared_relu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                           int64_t rows, int64_t cols, int64_t blocks, int dtype, Stream stream);
void swiglu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype, Stream stream);
void swiglu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias, int64_t
                     rows, int64_t cols, int64_t blocks, int dtype, Stream stream);

void softmax_forward(void* y, const void* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys, int64_t
                     rows_per_mask, int causal, double scale, int dtype, Stream stream);
void softmax_backward(void* dx, const void* dy, const void* y, int64_t rows, int64_t queries, int64_t keys, int causal,
                      double scale, int dtype, Stream stream);

void rotary(void* y, const void* x, const float* cos, const float* sin, int64_t positions, int64_t groups, int64_t
            heads, int64_t rotated_heads, int64_t head_dim, int64_t half, int interleaved, double direction, int dtype,
            Stream stream);
void dropout_residual_forward(void* y, const void* x, const void* bias, const void* residual, const int64_t*
                              row_numbers, int64_t rows, int64_t cols, int64_t key0, int64_t key1, int64_t threshold,
                              double scale, int dtype, Stream stream);
void dropout_residual_backward(void* dx, float* dbias, float* partial, const void* dy, const int64_t* row_numbers,
                               int64_t rows, int64_t cols, int64_t blocks, int64_t key0, int64_t key1, int64_t
                               threshold, double scale, int dtype, Stream stream);

void cross_entropy_peaks(float* peak, const void* logits, int64_t rows, int64_t cols, int64_t vocabulary, int dtype,
                         Stream stream);
void cross_entropy_sums(float* out, const void* logits, const float* peak, const int64_t* target, int64_t rows, int64_t
                        cols, int64_t vocabulary, int dtype, Stream stream);
void cross_entropy_gradient(void* logits, const float* peak, const float* total, const float* weight, const int64_t*
                            target, int64_t rows, int64_t cols, int64_t vocabulary, double on_target, double on_all, int
                            dtype, Stream stream);

void adamw(float* param, void* copy, const float* grad, float* mean, float* mean_square, int64_t size, double
           grad_factor, double param_factor, double beta1, double beta2, double epsilon, double root_factor, double
           rate, int dtype, Stream stream);

void sum_of_squares(double* partial, void* x, int64_t size, double factor, int dtype, Stream stream);

void normal_fill(void* out, const int64_t* starts, int64_t runs, int64_t length, double std, int64_t key0, int64_t key1,
                 int dtype, Stream stream);

}  // namespace megalite::cuda
