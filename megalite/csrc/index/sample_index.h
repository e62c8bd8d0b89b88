// Where each training sample starts in the stream of concatenated documents.
#pragma once

#include <cstdint>

namespace megalite {

struct SampleIndexInput {
  const int32_t* lengths;    // tokens of each document
  const void* order;         // document numbers in reading order, epochs after one another
  bool order_is_int64;       // else int32
  int64_t num_positions;     // entries of `order`
  int64_t num_samples;
  int64_t seq_length;
  int64_t extra;             // tokens that a sample shares with its successor: 1, or 0
};

// Fills `out`, [num_samples + 1, 2]: row k = (position in `order`, offset in that document) of the first token of
// sample k. Rows beyond the last token hold the last document and its length - extra. T is int32_t or int64_t.
template <typename T>
void build_sample_index(const SampleIndexInput& in, T* out, int num_threads);

}  // namespace megalite
