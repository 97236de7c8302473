// The operator as a whole: packs, shares the rows among threads, adds up what they found.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "dispatch.h"

namespace {

// One call of adaptive_conv2d. phi: in place of alpha
template <class Set, class T>
void forward(
    const Geometry& s, const T* x, const T* alpha, const T* bases, const T* mixing, const T* bias, T* y,
    const Unsquashed<T>* phi = nullptr) {
  const typename Set::template Plan<T> plan(s, bases, false);
  const typename Set::template Packed<T> packed(s, plan, bases, mixing, bias, false);
  using Walk = typename Set::template Walk<T>;
  walk_freely(s.B * s.P, [&] { return Walk(s, plan, packed, x, alpha, nullptr, y, nullptr, nullptr, phi); });
}

// Its gradients; those of mixing and bias are added to zeros. With phi, dalpha is that of the coefficients before Tanh.
template <class Set, class T>
void backward(
    const Geometry& s, const T* grad, const T* x, const T* alpha, const T* bases, const T* mixing, T* dx, T* dalpha, T* dmixing,
    T* dbias, const Unsquashed<T>* phi = nullptr) {
  const typename Set::template Plan<T> plan(s, bases, true);
  const typename Set::template Packed<T> packed(s, plan, bases, mixing, nullptr, true);
  using Walk = typename Set::template Walk<T>;
  std::vector<uint8_t> written(s.B * s.H);
  const auto walks = in_shares<Walk>(s.B * s.P, [&](int64_t first, int64_t last) {
    auto walk = std::make_unique<Walk>(s, plan, packed, x, alpha, grad, nullptr, dx, dalpha, phi);
    walk->written = written.data();
    walk->run(first, last);
    return walk;
  });
  // Rows that no window saw, and those that several threads contribute to.
  for (int64_t row = 0; row < s.B * s.H; ++row)
    if (!written[row]) std::fill_n(dx + row * s.W * s.C, s.W * s.C, T(0));
  for (const auto& walk : walks)
    for (const auto& row : walk->shared) {
      T* to = dx + (row.image * s.H + row.row) * s.W * s.C;
      for (size_t i = 0; i < row.values.size(); ++i) to[i] += row.values[i];
    }
  if (!mixing) return;
  const int64_t C = plan.seen_channels;
  torch::stable::parallel_for(0, s.O, 16, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (const auto& walk : walks) {
        dbias[o] += walk->dbias[o];
        for (int64_t m = 0; m < s.M; ++m)
          for (int64_t c = 0; c < C; ++c)
            dmixing[(o * C + c) * s.M + m] += walk->dA[o * plan.group_z + m * plan.group_channels + plan.first_seen(o) + c];
      }
    }
  });
}

}  // namespace
