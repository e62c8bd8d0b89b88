// Outputs of kernels. One that is larger than what caches hold until its use is written past them: a plain store would
// first read the memory that it overwrites, which is a third of the traffic of a copy.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

constexpr int64_t kPastCaches = int64_t{16} << 20;  // bytes

#if defined(__AVX512F__)
inline void stream(float* to, Vec x) { _mm512_stream_ps(to, bit_cast<__m512>(x)); }
template <typename T>
inline void stream(T* to, Vec x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bit_cast<__m256i>(narrow(x, T{})));
}
// Makes streamed stores visible to other threads.
inline void fence() { _mm_sfence(); }
#elif defined(__AVX2__)
inline void stream(float* to, Vec x) { _mm256_stream_ps(to, bit_cast<__m256>(x)); }
template <typename T>
inline void stream(T* to, Vec x) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), bit_cast<__m128i>(narrow(x, T{})));
}
inline void fence() { _mm_sfence(); }
#else
template <typename T>
inline void stream(T* to, Vec x) { store(to, x); }
inline void fence() {}
#endif

// A matrix of rows of `cols` elements that a kernel writes once and does not read.
template <typename T>
struct Output {
  T* to;
  bool streamed;
  Output(T* to, int64_t rows, int64_t cols) : to(to) {
    constexpr int64_t kLine = 64;
    const bool aligned = cols * sizeof(T) % kLine == 0 && reinterpret_cast<uintptr_t>(to) % kLine == 0;
    streamed = aligned && rows * cols * static_cast<int64_t>(sizeof(T)) >= kPastCaches;
  }
};

// Stores lanes i, i + 1, ..., where i is a multiple of kLanes in its row.
template <typename T>
inline void store(const Output<T>& output, int64_t i, Vec x, Whole) {
  if (output.streamed) stream(output.to + i, x);
  else store(output.to + i, x);
}
template <typename T>
inline void store(const Output<T>& output, int64_t i, Vec x, Part part) { store(output.to + i, x, part); }

}  // namespace megalite::MEGALITE_ISA
