// The whole layer with gradients. What the backward pass needs is kept: the input, and the two maps of Φ before their
// normalisations. Everything else is recomputed, in scratch memory.

#pragma once

#include <algorithm>
#include <cstdint>

#include "adaptive.h"
#include "dispatch.h"
#include "generator.h"

namespace {

// What a layer consists of. Φ: squeeze, 1×1; first normalisation; predict, 3×3; second.
template <class T>
struct LayerParts {
  Geometry s;
  ConvGeometry squeeze, predict;
  const T *squeeze_weight, *predict_weight, *bases, *mixing, *bias;
  Norm<T> first, second;

  Unsquashed<T> coefficients(const T* u2, const T* facts2) const {
    return {u2, second.mean_in(facts2), second.scale_in(facts2), second.shift_in(facts2)};
  }
};

template <class Set, class T>
void train_forward(const LayerParts<T>& l, const T* x, T* y, T* u1, T* facts1, T* u2, T* facts2) {
  convolve<Set, T>(l.squeeze, x, l.squeeze_weight, nullptr, false, u1, false);
  find_facts<Set, T>(l.first, u1, facts1);
  {
    Scratch<T> hidden;
    hidden.resize(l.first.channels * l.first.rows * l.first.width, false);
    squash<Set, T>(l.first, facts1, u1, hidden.data());
    convolve<Set, T>(l.predict, hidden.data(), l.predict_weight, nullptr, false, u2, false);
  }
  find_facts<Set, T>(l.second, u2, facts2);
  const Unsquashed<T> phi = l.coefficients(u2, facts2);
  forward<Set, T>(l.s, x, nullptr, l.bases, l.mixing, l.bias, y, &phi);
}

// Where the gradients go. dsqueeze, dpredict, dmixing and dbias are added to zeros.
template <class T>
struct LayerGradients {
  T *x, *squeeze, *weight1, *bias1, *predict, *weight2, *bias2, *mixing, *bias;
  bool input;  // whether that of x is asked for
};

template <class Set, class T>
void train_backward(
    const LayerParts<T>& l, bool fixed1, bool fixed2, const T* grad, const T* x, const T* u1, const T* facts1, const T* u2,
    const T* facts2, const LayerGradients<T>& d) {
  const int64_t hidden_maps = l.first.channels * l.first.rows * l.first.width;
  Scratch<T> du2, hidden, du1;
  du2.resize(l.second.channels * l.second.rows * l.second.width, false);
  const Unsquashed<T> phi = l.coefficients(u2, facts2);
  backward<Set, T>(l.s, grad, x, nullptr, l.bases, l.mixing, d.x, du2.data(), d.mixing, d.bias, &phi);
  squash_back<Set, T>(
      l.second, fixed2, l.second.mean_in(facts2), l.second.var_in(facts2), nullptr, nullptr, u2, du2.data(), d.weight2,
      d.bias2);
  hidden.resize(hidden_maps, false);
  squash<Set, T>(l.first, facts1, u1, hidden.data());
  differentiate<Set, T>(l.predict, hidden.data(), du2.data(), d.predict);
  du1.resize(hidden_maps, false);
  convolve<Set, T>(turned(l.predict), du2.data(), l.predict_weight, nullptr, false, du1.data(), true);
  squash_back<Set, T>(
      l.first, fixed1, l.first.mean_in(facts1), l.first.var_in(facts1), du1.data(), hidden.data(), u1, du1.data(), d.weight1,
      d.bias1);
  differentiate<Set, T>(l.squeeze, x, du1.data(), d.squeeze);
  if (!d.input) return;
  Scratch<T> through;  // Φ
  const int64_t count = l.s.H * l.s.W * l.s.C;
  through.resize(l.s.B * count, false);
  convolve<Set, T>(turned(l.squeeze), du1.data(), l.squeeze_weight, nullptr, false, through.data(), true);
  torch::stable::parallel_for(0, l.s.B * l.s.H, 1, [&](int64_t begin, int64_t end) {
    const int64_t row = l.s.W * l.s.C;
    for (int64_t i = begin * row; i < end * row; ++i) d.x[i] += through[i];
  });
}

}  // namespace
