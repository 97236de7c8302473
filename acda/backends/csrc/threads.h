// How work is shared among threads.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

inline int64_t threads_for(int64_t rows) {
  return std::max<int64_t>(1, std::min<int64_t>(torch::stable::get_num_threads(), rows));
}

// Walk over output rows that do not depend on each other. A thread takes part of what is left whenever it is free, ever
// smaller parts, so that a core which is busy with something else holds nobody up. Parts are not smaller than `least`.
template <class MakeWalk>
void walk_freely(int64_t rows, MakeWalk make_walk, int64_t least = 2) {
  const int64_t threads = threads_for(rows), parts = threads == 1 ? 1 : 2 * threads;
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    auto walk = make_walk();
    for (int64_t first = next; first < rows;) {
      const int64_t last = std::min(rows, first + std::max<int64_t>(least, (rows - first) / parts));
      if (!next.compare_exchange_weak(first, last)) continue;  // another thread was faster; first is where it left off
      walk.run(first, last);
      first = next;
    }
  });
}

// One share of the rows for each thread, in order: sums over them repeat with the same number of threads.
template <class Share, class MakeShare>
std::vector<std::unique_ptr<Share>> in_shares(int64_t rows, MakeShare make_share) {
  const int64_t threads = threads_for(rows);
  std::vector<std::unique_ptr<Share>> shares(threads);
  torch::stable::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) shares[i] = make_share(rows * i / threads, rows * (i + 1) / threads);
  });
  return shares;
}
