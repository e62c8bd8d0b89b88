#include "sample_index.h"

#include <algorithm>
#include <vector>

#include "parallel.h"

namespace megalite {
namespace {

// Sample k starts at token k * seq_length of the stream. Its row belongs to the document that holds token
// k * seq_length + extra - 1 (the last one that sample k - 1 reads), so every document can emit its own rows once
// the number of tokens before it is known: a prefix sum, then independent work.
template <typename T, typename Order>
void fill(const SampleIndexInput& in, T* out, int num_threads) {
  const auto* order = static_cast<const Order*>(in.order);
  const int64_t shift = in.extra - 1;
  std::vector<int64_t> before(num_threads + 1, 0);

  parallel_parts(in.num_positions, num_threads, [&](int part, int64_t begin, int64_t end) {
    int64_t tokens = 0;
    for (int64_t i = begin; i < end; ++i) tokens += in.lengths[order[i]];
    before[part + 1] = tokens;
  });
  for (int part = 0; part < num_threads; ++part) before[part + 1] += before[part];

  parallel_parts(in.num_positions, num_threads, [&](int part, int64_t begin, int64_t end) {
    int64_t start = before[part];  // tokens before document i
    // The first row of this part: the smallest k >= 1 with k * seq_length + shift >= start.
    int64_t k = std::max<int64_t>(1, (start - shift + in.seq_length - 1) / in.seq_length);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t stop = start + in.lengths[order[i]];
      for (; k <= in.num_samples && k * in.seq_length + shift < stop; ++k) {
        out[2 * k] = static_cast<T>(i);
        out[2 * k + 1] = static_cast<T>(k * in.seq_length - start);
      }
      start = stop;
    }
  });

  out[0] = 0;
  out[1] = 0;
  const int64_t total = before[num_threads];
  const int64_t last = in.num_positions - 1;
  for (int64_t k = in.num_samples; k > 0 && k * in.seq_length + shift >= total; --k) {
    out[2 * k] = static_cast<T>(last);
    out[2 * k + 1] = static_cast<T>(in.lengths[order[last]] - in.extra);
  }
}

}  // namespace

template <typename T>
void build_sample_index(const SampleIndexInput& in, T* out, int num_threads) {
  if (in.order_is_int64) {
    fill<T, int64_t>(in, out, num_threads);
  } else {
    fill<T, int32_t>(in, out, num_threads);
  }
}

template void build_sample_index<int32_t>(const SampleIndexInput&, int32_t*, int);
template void build_sample_index<int64_t>(const SampleIndexInput&, int64_t*, int);

}  // namespace megalite
