// The part of CUDA C++ that megalite's kernels use, for a host compiler: a .cu file that includes this header (through
// csrc/cuda/platform.h) compiles with g++ and runs on the CPU.
//
// Blocks run one after the other. The threads of a block are fibers (fibers.cpp) that change places at barriers and
// warp operations only. What would be undefined or hang on a GPU is an exception that names the block and the thread: a
// barrier that not all threads of the block reach, a warp operation that not all lanes of its mask reach, a value taken
// from a lane that gave none, a misaligned vector. Dynamic shared memory starts as NaNs. Threads that race for memory
// are not found as such, but they rarely give the same result in every order in which `emulation_set_order` lets them
// run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // one block runs at a time

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// ---- launching

using cudaStream_t = struct CUstream_st*;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorInvalidConfiguration) return "invalid configuration argument";
  return error == cudaErrorInvalidValue ? "invalid argument" : "no error";
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace emulation {

// Where a barrier or a warp operation stands in the sources.
struct Site {
  const char* name;
  const char* file;
  int line;
};

cudaError_t run(const cudaLaunchConfig_t& config, const void* kernel, const std::function<void()>& thread);
cudaError_t allow_shared(const void* kernel, int bytes);
void* dynamic_shared();

// Waits for all threads of the block.
void barrier(Site site);

// Waits for the lanes of `mask`, which pass the same mask at the same site, and returns what each lane of the warp
// gave; `present` receives the lanes that did.
const uint64_t* meet(unsigned mask, uint64_t given, Site site, unsigned* present);

int lane();

[[noreturn]] void fail(const std::string& what);

template <typename V, typename T>
V* vector_at(T* at) {
  if (reinterpret_cast<uintptr_t>(at) % alignof(V) != 0) fail("an address that is not aligned for its vector");
  return reinterpret_cast<V*>(at);
}

}  // namespace emulation

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args... args) {
  return emulation::run(*config, reinterpret_cast<const void*>(kernel), [&] { kernel(Params(args)...); });
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  return emulation::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}

// ---- barriers and warp operations; the last parameters are filled in by the compiler

#define EMULATION_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATION_SITE) { emulation::barrier({"__syncthreads", file, line}); }

inline void __syncwarp(unsigned mask = ~0u, EMULATION_SITE) {
  unsigned present;
  emulation::meet(mask, 0, {"__syncwarp", file, line}, &present);
}

inline unsigned __ballot_sync(unsigned mask, bool vote, EMULATION_SITE) {
  unsigned present, votes = 0;
  const uint64_t* given = emulation::meet(mask, vote, {"__ballot_sync", file, line}, &present);
  for (int lane = 0; lane < warpSize; ++lane) votes |= (present >> lane & 1 && given[lane]) ? 1u << lane : 0u;
  return votes;
}

namespace emulation {

template <typename T>
T shuffle(unsigned mask, T value, int source, Site site) {
  static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  unsigned present;
  const uint64_t* given = meet(mask, bits, site, &present);
  if (!(present >> source & 1)) {
    fail(std::string(site.name) + " takes the value of lane " + std::to_string(source) + ", which gave none");
  }
  std::memcpy(&value, &given[source], sizeof value);
  return value;
}

// Lanes are divided into segments of `width`; a source beyond the own segment means the own lane.
inline int segment_source(int source, int width) { return source / width == lane() / width ? source : lane(); }

}  // namespace emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, EMULATION_SITE) {
  int first = emulation::lane() / width * width;
  return emulation::shuffle(mask, value, first + (source & (width - 1)), {"__shfl_sync", file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, EMULATION_SITE) {
  int source = emulation::segment_source(emulation::lane() ^ lane_mask, width);
  return emulation::shuffle(mask, value, source, {"__shfl_xor_sync", file, line});
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMULATION_SITE) {
  int source = emulation::segment_source(emulation::lane() + static_cast<int>(delta), width);
  return emulation::shuffle(mask, value, source, {"__shfl_down_sync", file, line});
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMULATION_SITE) {
  int source = emulation::lane() - static_cast<int>(delta);
  source = source < 0 ? emulation::lane() : emulation::segment_source(source, width);
  return emulation::shuffle(mask, value, source, {"__shfl_up_sync", file, line});
}

#undef EMULATION_SITE

// ---- memory

template <typename T>
T atomicAdd(T* at, T value) {
  T before = *at;
  *at = before + value;
  return before;
}

template <typename T>
T __ldg(const T* at) { return *at; }

// ---- numbers

inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) * b >> 32; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(__half x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }

inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }

// To the nearest, ties to even; a NaN becomes the one of the hardware.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t bits = __float_as_uint(x);
  if (x != x) return {0x7FFF};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half x) {
  uint32_t magnitude = x.bits & 0x7FFF, sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  if (magnitude >= 0x7C00) return __uint_as_float(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  // Its bits, moved to a float's place, are 2^-112 times its value, subnormals included.
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 13) * 0x1p112f));
}

inline __half __float2half_rn(float x) {
  uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7FFFFFFF, sign = bits >> 16 & 0x8000, half;
  if (magnitude > 0x7F800000) return {0x7FFF};
  if (magnitude >= 0x477FF000) {  // 65520, halfway from the largest half to the next power of two
    half = 0x7C00;
  } else if (magnitude < 0x38800000) {  // 2^-14: subnormal halfs are multiples of 2^-24
    half = static_cast<uint32_t>(std::lrintf(__uint_as_float(magnitude) * 0x1p24f));
  } else {
    half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}
