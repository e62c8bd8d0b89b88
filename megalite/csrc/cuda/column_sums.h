// Sums over rows that become a parameter's gradient. Each team takes a range of rows and adds them up in order, in
// shared memory where that suffices, into a row of its own of `partial`; a second kernel adds those rows. No atomics:
// the result is always the same.
#pragma once

#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {

// How the work on `rows` rows, of which `num_sums` sums (or none) are taken, is shared out to teams.
struct RowRanges {
  int64_t rows, num_sums, teams;
  bool in_shared;
  Launch launch;
};

// At most `blocks` teams take sums: `partial` has as many rows.
inline RowRanges share_rows(int64_t rows, int64_t num_sums, int64_t blocks, int team_size, Stream stream) {
  constexpr int64_t kLargestShared = 96 << 10;  // bytes that a block can have on every GPU of the build
  const int64_t wanted = team_size == 32 ? 1024 : 512;  // some for every multiprocessor
  const int threads = num_sums > 0 && team_size == 32 ? 128 : kBlock, teams_per_block = threads / team_size;
  const int64_t teams = num_sums == 0 ? rows : blocks < wanted ? blocks : wanted;
  const int64_t shared_bytes = teams_per_block * num_sums * static_cast<int64_t>(sizeof(float));
  const bool in_shared = shared_bytes <= kLargestShared;
  const Launch launch{divide_up(teams, teams_per_block), threads, stream, in_shared ? size_t(shared_bytes) : 0};
  return {rows, num_sums, teams, in_shared, launch};
}

// body(row) for the rows of the team's range. Teams from `ranges.teams` on, which fill up the last block, have none.
template <int kSize, typename Body>
__device__ void for_range(const Team<kSize>& team, const RowRanges& ranges, Body body) {
  if (team.number >= ranges.teams) return;
  const int64_t end = ranges.rows * (team.number + 1) / ranges.teams;
  for (int64_t row = ranges.rows * team.number / ranges.teams; row < end; ++row) body(row);
}

// A team's sums, zero at first. A thread must add to the same columns in every row.
template <int kSize>
class ColumnSums {
 public:
  __device__ ColumnSums(const Team<kSize>& team, const RowRanges& ranges, float* partial)
      : team_(team), num_sums_(team.number < ranges.teams ? ranges.num_sums : 0), in_shared_(ranges.in_shared) {
    row_ = partial + team.number * ranges.num_sums;
    sums_ = in_shared_ ? dynamic_shared<float>() + threadIdx.x / kSize * ranges.num_sums : row_;
    for (int64_t i = team.rank; i < num_sums_; i += kSize) sums_[i] = 0.0f;
    team.sync();
  }

  template <int n>
  __device__ void add(int64_t i, const Floats<n>& x) {
    if (num_sums_ > 0) store(sums_ + i, load<n>(sums_ + i) + x);
  }

  __device__ void finish() {
    team_.sync();
    if (!in_shared_) return;
    for (int64_t i = team_.rank; i < num_sums_; i += kSize) row_[i] = sums_[i];
  }

 private:
  const Team<kSize>& team_;
  int64_t num_sums_;
  bool in_shared_;
  float *row_, *sums_;
};

// total[i] = sum of partial[t * stride + i] over the teams t, for cols columns.
void sum_partial(float* total, const float* partial, int64_t teams, int64_t stride, int64_t cols, Stream stream);

}  // namespace megalite::cuda
