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

// Transposed: the convolution that carries a gradient back to the input.
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

// Numbers for each channel.
struct Channels {
  const Tensor &weight, &bias;
  const std::optional<Tensor>&mean, &var;
  double eps;
};

template <class Set, class T>
void normalise(const Tensor& u, const Channels& c, Tensor& y, Tensor& mean, Tensor& var) {
  using NormTanh = typename Set::template NormTanh<T>;
  using Statistics = typename NormTanh::Statistics;
  const int64_t O = u.size(3), rows = u.size(0) * u.size(1), width = u.size(2);
  T *means = out<T>(mean), *vars = out<T>(var);
  std::vector<double> below(O);  // what the mean loses when it is rounded to T
  if (c.mean) {
    std::copy_n(in<T>(c.mean), O, means);
    std::copy_n(in<T>(c.var), O, vars);
  } else {
    Statistics all(O);
    for (const auto& part : in_shares<Statistics>(rows, [&](int64_t first, int64_t last) {
           auto part = std::make_unique<Statistics>(O);
           part->add(in<T>(u) + first * width * O, (last - first) * width);
           return part;
         }))
      all.add(*part);
    for (int64_t o = 0; o < O; ++o) {
      means[o] = T(all.mean[o]), vars[o] = T(all.squares[o] / double(rows * width));
      below[o] = all.mean[o] - double(means[o]);
    }
  }
  std::vector<T> scale(O), shift(O);
  for (int64_t o = 0; o < O; ++o) {
    const double factor = in<T>(c.weight)[o] / std::sqrt(double(vars[o]) + c.eps);
    scale[o] = T(factor);
    shift[o] = T(in<T>(c.bias)[o] - below[o] * factor);
  }
  torch::stable::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) {
    NormTanh::forward(
        O, in<T>(u) + first * width * O, means, scale.data(), shift.data(), out<T>(y) + first * width * O,
        (last - first) * width);
  });
}

template <class Set, class T>
void normalise_back(
    const Tensor& grad, const Tensor& y, const Tensor& u, const Tensor& weight, const Tensor& mean, const Tensor& var,
    double eps, bool fixed, Tensor& du, Tensor& dweight, Tensor& dbias) {
  using NormTanh = typename Set::template NormTanh<T>;
  const int64_t O = u.size(3), rows = u.size(0) * u.size(1), width = u.size(2);
  const T *means = in<T>(mean), *vars = in<T>(var);
  std::vector<double> sum(O), product(O);
  using Pair = std::pair<std::vector<double>, std::vector<double>>;
  for (const auto& part : in_shares<Pair>(rows, [&](int64_t first, int64_t last) {
         auto part = std::make_unique<Pair>(std::vector<double>(O), std::vector<double>(O));
         const int64_t at = first * width * O;
         NormTanh::sums(
             O, in<T>(grad) + at, in<T>(y) + at, in<T>(u) + at, means, (last - first) * width, part->first.data(),
             part->second.data());
         return part;
       }))
    for (int64_t o = 0; o < O; ++o) sum[o] += part->first[o], product[o] += part->second[o];
  std::vector<T> scale(O), offset(O), slope(O);
  const double pixels = double(rows * width);
  for (int64_t o = 0; o < O; ++o) {
    const double inverse = 1 / std::sqrt(double(vars[o]) + eps), factor = in<T>(weight)[o] * inverse;
    out<T>(dweight)[o] = T(product[o] * inverse);
    out<T>(dbias)[o] = T(sum[o]);
    scale[o] = T(factor);
    if (fixed) continue;  // the statistics do not depend on u
    offset[o] = T(factor * sum[o] / pixels);
    slope[o] = T(factor * product[o] * inverse * inverse / pixels);
  }
  torch::stable::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) {
    const int64_t at = first * width * O;
    NormTanh::backward(
        O, in<T>(grad) + at, in<T>(y) + at, in<T>(u) + at, means, scale.data(), offset.data(), slope.data(), out<T>(du) + at,
        (last - first) * width);
  });
}

}  // namespace
