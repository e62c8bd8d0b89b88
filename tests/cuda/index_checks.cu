// The kernels' index arithmetic in the middle of grids and tensors of more than 2^31 elements, too large to allocate.
#include "cuda/column_sums.h"
#include "cuda/flat.h"

using namespace megalite::cuda;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

void place(unsigned block, unsigned blocks, unsigned thread, unsigned threads) {
  blockIdx = {block, 0, 0};
  gridDim = dim3(blocks);
  threadIdx = {thread, 0, 0};
  blockDim = dim3(threads);
}

}  // namespace

// The number of a warp in the grid, and the rows that it takes of `rows`: the first two, by the grid's stride.
EXPORT void warp_rows(unsigned block, unsigned blocks, unsigned thread, int64_t rows, int64_t* out) {
  place(block, blocks, thread, kBlock);
  const Team<32> team;
  *out++ = team.number;
  int taken = 0;
  for_rows(team, {rows, 1, false}, [&](int64_t row) {
    if (taken++ < 2) *out++ = row;
  });
}

// The range of rows of a team, from the first to the one after the last.
EXPORT void range(unsigned block, int64_t rows, int64_t blocks, int64_t* out) {
  place(block, static_cast<unsigned>(blocks), 0, kBlock);
  RowRanges ranges{rows, 1, blocks, false, {}};
  const Team<kBlock> team;
  out[0] = -1;
  for_range(team, ranges, [&](int64_t row) {
    if (out[0] < 0) out[0] = row;
    out[1] = row + 1;
  });
}

// The first element of a thread, and how many elements it takes in all: packs of four and single ones.
EXPORT void elements(unsigned block, unsigned blocks, unsigned thread, int64_t size, int64_t* out) {
  place(block, blocks, thread, kBlock);
  out[0] = -1;
  out[1] = 0;
  for_elements<4>(size, true, [&](int64_t i, auto width) {
    if (out[0] < 0) out[0] = i;
    out[1] += decltype(width)::value;
  });
}

EXPORT void launch_sizes(int64_t size, int64_t* out) {
  out[0] = over_elements(size, 4, nullptr).blocks;
  const RowRanges ranges = share_rows(size, 0, 0, 32, nullptr);
  out[1] = ranges.teams;
  out[2] = ranges.launch.blocks;
}
