// Splitting a range over a few threads. The index builders run once per data set, so plain threads serve; a pool
// would outlive its use, and an OpenMP runtime of our own would be a second one beside torch's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace megalite {

// Calls body(part, begin, end) for `num_parts` contiguous parts of [0, size), each part on its own thread.
// An exception thrown by a part is rethrown here once all of them have ended.
template <typename Body>
void parallel_parts(int64_t size, int num_parts, Body body) {
  std::vector<std::exception_ptr> errors(num_parts);
  auto run = [&](int part) {
    try {
      body(part, size * part / num_parts, size * (part + 1) / num_parts);
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int part = 1; part < num_parts; ++part) threads.emplace_back(run, part);
  run(0);
  for (auto& thread : threads) thread.join();
  for (auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace megalite
