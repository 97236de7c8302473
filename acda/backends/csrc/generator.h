// The steps of the generator as a whole: a convolution, then normalisation and Tanh.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace {

// Whether 3×3 convolutions may take Winograd's form, whose rounding depends on the place. ACDA_WINOGRAD=0 begins without.
std::atomic<bool> winograd{[] {
  const char* variable = std::getenv("ACDA_WINOGRAD");
  return !variable || std::string_view(variable) != "0";
}()};

template <class Set, class T>
bool takes_winograd(const ConvGeometry& s) {
  return winograd && std::is_same_v<T, float> && Set::template Winograd<T>::pays(s);
}

// The convolution that carries a gradient back to the input of s.
inline ConvGeometry turned(const ConvGeometry& s) {
  return {s.B, s.P, s.Q, s.O, s.C, s.k, s.H, s.W, 1, 1, s.k - 1 - s.py, s.k - 1 - s.px};
}

// Transposed: with the filters turned round, as that convolution wants them.
template <class Set, class T>
void convolve(const ConvGeometry& s, const T* x, const T* weight, const T* shift, bool squash, T* y, bool transposed) {
  using Fast = typename Set::template Winograd<T>;
  if (takes_winograd<Set, T>(s)) {
    const typename Fast::Packed packed(s, weight, shift, transposed);
    const auto grid = Fast::Grid::for_forward(s);
    walk_freely(grid.blocks, [&] { return typename Fast::Walk(s, packed, grid, x, y, squash); });
    return;
  }
  using Direct = typename Set::template Conv<T>;
  const typename Direct::Packed packed(s, weight, shift, transposed);
  walk_freely(s.B * s.P, [&] { return typename Direct::Walk(s, packed, x, y, squash); });
}

// The gradient of the weights, from zeros.
template <class Set, class T>
void differentiate(const ConvGeometry& s, const T* x, const T* grad, T* dweight) {
  using Fast = typename Set::template Winograd<T>;
  if (takes_winograd<Set, T>(s)) {
    const auto grid = Fast::Grid::for_gradient(s);
    using Sums = typename Fast::WeightGradient;
    const auto shares = in_shares<Sums>(grid.blocks, [&](int64_t first, int64_t last) {
      auto sums = std::make_unique<Sums>(s, grid, x, grad);
      sums->run(first, last);
      return sums;
    });
    torch::stable::parallel_for(0, s.C, 8, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) Sums::finish(s, shares, c, dweight);
    });
    return;
  }
  using Direct = typename Set::template Conv<T>;
  using Sums = typename Direct::WeightGradient;
  const auto shares = in_shares<Sums>(s.B * s.P, [&](int64_t first, int64_t last) {
    auto sums = std::make_unique<Sums>(s, x, grad);
    sums->run(first, last);
    return sums;
  });
  constexpr int64_t kPanel = Direct::kPanel;
  torch::stable::parallel_for(0, s.O, 8, [&](int64_t begin, int64_t end) {
    for (const auto& sums : shares)
      for (int64_t o = begin; o < end; ++o)
        for (int64_t c = 0; c < s.C; ++c)
          for (int64_t t = 0; t < s.k * s.k; ++t)
            dweight[(o * s.C + c) * s.k * s.k + t] +=
                sums->sums[((c / kPanel * s.k * s.k + t) * s.O + o) * kPanel + c % kPanel];
  });
}

// A normalisation of pixels of `channels` numbers, in rows of `width` pixels. mean and var: fixed statistics, or none for
// those of the pixels themselves.
template <class T>
struct Norm {
  int64_t channels, rows, width;
  const T *weight, *bias, *mean, *var;
  double eps;

  // What it was computed with, a row each: mean, variance, and the scale and shift that follow from them.
  static constexpr int64_t kFacts = 4;
  const T* mean_in(const T* facts) const { return facts; }
  const T* var_in(const T* facts) const { return facts + channels; }
  const T* scale_in(const T* facts) const { return facts + 2 * channels; }
  const T* shift_in(const T* facts) const { return facts + 3 * channels; }
};

// y = tanh(norm(u)), with what find_facts found.
template <class Set, class T>
void squash(const Norm<T>& n, const T* facts, const T* u, T* y) {
  torch::stable::parallel_for(0, n.rows, 1, [&](int64_t first, int64_t last) {
    const int64_t at = first * n.width * n.channels;
    Set::template NormTanh<T>::forward(
        n.channels, u + at, n.mean_in(facts), n.scale_in(facts), n.shift_in(facts), y + at, (last - first) * n.width);
  });
}

template <class Set, class T>
void find_facts(const Norm<T>& n, const T* u, T* facts) {
  using Statistics = typename Set::template NormTanh<T>::Statistics;
  const int64_t O = n.channels;
  T *means = facts, *vars = facts + O, *scale = facts + 2 * O, *shift = facts + 3 * O;
  std::vector<double> below(O);  // what the mean loses when it is rounded to T
  if (n.mean) {
    std::copy_n(n.mean, O, means);
    std::copy_n(n.var, O, vars);
  } else {
    Statistics all(O);
    for (const auto& part : in_shares<Statistics>(n.rows, [&](int64_t first, int64_t last) {
           auto part = std::make_unique<Statistics>(O);
           part->add(u + first * n.width * O, (last - first) * n.width);
           return part;
         }))
      all.add(*part);
    for (int64_t o = 0; o < O; ++o) {
      means[o] = T(all.mean[o]), vars[o] = T(all.squares[o] / double(n.rows * n.width));
      below[o] = all.mean[o] - double(means[o]);
    }
  }
  for (int64_t o = 0; o < O; ++o) {
    const double factor = n.weight[o] / std::sqrt(double(vars[o]) + n.eps);
    scale[o] = T(factor);
    shift[o] = T(n.bias[o] - below[o] * factor);
  }
}

// The gradients of u, weight and bias, from that of y; du may be the memory of the gradient. Without y, the gradient is the
// one before Tanh, in du already.
template <class Set, class T>
void squash_back(
    const Norm<T>& n, bool fixed, const T* mean, const T* var, const T* grad, const T* y, const T* u, T* du, T* dweight,
    T* dbias) {
  using NormTanh = typename Set::template NormTanh<T>;
  const int64_t O = n.channels;
  std::vector<double> sum(O), product(O);
  using Pair = std::pair<std::vector<double>, std::vector<double>>;
  for (const auto& part : in_shares<Pair>(n.rows, [&](int64_t first, int64_t last) {
         auto part = std::make_unique<Pair>(std::vector<double>(O), std::vector<double>(O));
         for (int64_t row = first, at = row * n.width * O; row < last; ++row, at += n.width * O) {
           if (y) NormTanh::through_tanh(n.width * O, grad + at, y + at, du + at);
           NormTanh::sums(O, du + at, u + at, mean, n.width, part->first.data(), part->second.data());
         }
         return part;
       }))
    for (int64_t o = 0; o < O; ++o) sum[o] += part->first[o], product[o] += part->second[o];
  std::vector<T> scale(O), offset(O), slope(O);
  const double pixels = double(n.rows * n.width);
  for (int64_t o = 0; o < O; ++o) {
    const double inverse = 1 / std::sqrt(double(var[o]) + n.eps), factor = n.weight[o] * inverse;
    dweight[o] = T(product[o] * inverse);
    dbias[o] = T(sum[o]);
    scale[o] = T(factor);
    if (fixed) continue;  // the statistics do not depend on u
    offset[o] = T(factor * sum[o] / pixels);
    slope[o] = T(factor * product[o] * inverse * inverse / pixels);
  }
  torch::stable::parallel_for(0, n.rows, 1, [&](int64_t first, int64_t last) {
    const int64_t at = first * n.width * O;
    NormTanh::backward(O, du + at, u + at, mean, scale.data(), offset.data(), slope.data(), (last - first) * n.width);
  });
}

}  // namespace
