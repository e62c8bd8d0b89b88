// Kernels that use each part of the emulation, rightly and wrongly. Each function runs one and returns the message of
// its failure, or an empty string.
#include <string>

#include "cuda/pack.h"

namespace {

using namespace megalite::cuda;

std::string message;

template <typename... Params, typename... Args>
const char* launch(int blocks, int threads, size_t shared, void (*kernel)(Params...), Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  try {
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(args)...);
    message = error == cudaSuccess ? "" : cudaGetErrorString(error);
  } catch (const std::exception& failure) {
    message = failure.what();
  }
  return message.c_str();
}

__global__ void reverse(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void forgotten_barrier(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = 1 + threadIdx.x;
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
  __syncthreads();
  values[threadIdx.x] = 0;
}

__global__ void shuffles(int* out, int width) {
  const int lane = threadIdx.x % 32;
  out[lane] = __shfl_xor_sync(~0u, lane, 1, width);
  out[32 + lane] = __shfl_down_sync(~0u, lane, 3, width);
  out[64 + lane] = __shfl_up_sync(~0u, lane, 3, width);
  out[96 + lane] = __shfl_sync(~0u, lane, 5, width);
  if (lane >= 16) out[128 + lane] = __ballot_sync(0xFFFF0000u, lane % 2) >> 16;
  __syncwarp();
}

__global__ void count(int* out) { atomicAdd(out, static_cast<int>(threadIdx.x)); }

__global__ void divergent_barrier() {
  if (threadIdx.x == 40 && blockIdx.x == 1) return;
  __syncthreads();
}

__global__ void two_barriers() {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}

__global__ void missing_lane() {
  if (threadIdx.x != 7) __shfl_xor_sync(~0u, 1, 1);
  else __syncthreads();
}

__global__ void other_masks() { __shfl_xor_sync(threadIdx.x < 8 ? 0xFFFFu : ~0u, 1, 1); }

__global__ void foreign_mask() { __syncwarp(1u); }

__global__ void silent_source(int* out) {
  if (threadIdx.x < 4) out[threadIdx.x] = __shfl_sync(0xFu, 1, 9);
}

__global__ void misaligned(const float* x, float* out) { store(out, load<4>(x + 1)); }

__global__ void unset_shared(float* out) { out[threadIdx.x] = dynamic_shared<float>()[threadIdx.x]; }

__global__ void beyond_shared(float* out) { out[0] = dynamic_shared<float>()[4]; }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* run_reverse(int* out) { return launch(3, 64, 0, reverse, out); }
EXPORT const char* run_forgotten_barrier(int* out) { return launch(1, 64, 0, forgotten_barrier, out); }
EXPORT const char* run_shuffles(int* out, int width) { return launch(1, 32, 0, shuffles, out, width); }
EXPORT const char* run_count(int* out) { return launch(2, 100, 0, count, out); }
EXPORT const char* run_divergent_barrier(int*) { return launch(2, 64, 0, divergent_barrier); }
EXPORT const char* run_two_barriers(int*) { return launch(1, 64, 0, two_barriers); }
EXPORT const char* run_missing_lane(int*) { return launch(1, 64, 0, missing_lane); }
EXPORT const char* run_other_masks(int*) { return launch(1, 32, 0, other_masks); }
EXPORT const char* run_foreign_mask(int*) { return launch(1, 32, 0, foreign_mask); }
EXPORT const char* run_silent_source(int* out) { return launch(1, 32, 0, silent_source, out); }
EXPORT const char* run_misaligned(float* out) { return launch(1, 1, 0, misaligned, out, out); }
EXPORT const char* run_unset_shared(float* out) { return launch(1, 8, 32, unset_shared, out); }
EXPORT const char* run_beyond_shared(float* out) { return launch(1, 1, 16, beyond_shared, out); }
EXPORT const char* run_sizes(float* out, int blocks, int threads, int64_t shared) {
  return launch(blocks, threads, shared, unset_shared, out);
}

template <typename T>
void convert(const float* from, uint16_t* to, float* back, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    T x;
    narrow(from[i], x);
    to[i] = x.bits;
    back[i] = widen(x);
  }
}

EXPORT void convert_bfloat16(const float* from, uint16_t* to, float* back, int64_t size) {
  convert<megalite::Bfloat16>(from, to, back, size);
}
EXPORT void convert_float16(const float* from, uint16_t* to, float* back, int64_t size) {
  convert<megalite::Float16>(from, to, back, size);
}
