// What the operators demand of their arguments, and the geometry that follows from them.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "geometry.h"
#include "tensors.h"

namespace {

Geometry geometry_of(
    const Tensor& x, const Tensor& alpha, const std::optional<Tensor>& bases, const std::optional<Tensor>& mixing, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups, bool planar) {
  Geometry s{};
  s.planar = planar;
  s.B = x.size(0), s.C = x.size(planar ? 1 : 3), s.H = x.size(planar ? 2 : 1), s.W = x.size(planar ? 3 : 2);
  s.P = alpha.size(1), s.Q = alpha.size(2), s.M = alpha.size(3), s.L = alpha.size(4);
  s.k = k, s.sy = sy, s.sx = sx, s.py = py, s.px = px, s.dy = dy, s.dx = dx, s.groups = groups;
  s.has_bases = bases.has_value(), s.has_mixing = mixing.has_value();
  s.O = mixing ? mixing->size(0) : s.C * s.M;
  return s;
}

void check_window(int64_t k, int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  STD_TORCH_CHECK(k > 0 && sy > 0 && sx > 0 && dy > 0 && dx > 0 && py >= 0 && px >= 0 && groups > 0, "acda: bad window.");
}

void check_parameters(const Geometry& s, const std::optional<Tensor>& bases, const std::optional<Tensor>& mixing) {
  STD_TORCH_CHECK(
      s.C > 0 && s.O > 0 && s.M > 0 && s.L > 0 && s.C % s.groups == 0 && s.O % s.groups == 0,
      "acda: channels, atoms and groups do not fit together.");
  STD_TORCH_CHECK(
      bases ? bases->size(0) == s.L && bases->size(1) == s.k && bases->size(2) == s.k : s.L == s.k * s.k,
      "acda: the bases need one k x k element per coefficient.");
  STD_TORCH_CHECK(
      !mixing || (mixing->size(1) == s.C / s.groups && mixing->size(2) == s.M), "acda: mixing needs (O, C/groups, M).");
  STD_TORCH_CHECK(mixing || s.groups == 1, "acda: without mixing there are no groups.");
}

Geometry checked(
    const Tensor& x, const Tensor& alpha, const std::optional<Tensor>& bases, const std::optional<Tensor>& mixing, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups, bool planar = false) {
  check_floating(x);
  check(x, x, 4, "x");
  check(alpha, x, 5, "coefficients");
  if (bases) check(*bases, x, 3, "bases");
  if (mixing) check(*mixing, x, 3, "mixing");
  const Geometry s = geometry_of(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups, planar);
  check_window(k, sy, sx, py, px, dy, dx, groups);
  STD_TORCH_CHECK(
      alpha.size(0) == s.B && s.H + 2 * py > dy * (k - 1) && s.W + 2 * px > dx * (k - 1) &&
          s.P == (s.H + 2 * py - dy * (k - 1) - 1) / sy + 1 && s.Q == (s.W + 2 * px - dx * (k - 1) - 1) / sx + 1,
      "acda: the coefficients need one set per output pixel.");
  check_parameters(s, bases, mixing);
  return s;
}

void check_bias(const Geometry& s, const Tensor& x, const std::optional<Tensor>& bias) {
  if (!bias) return;
  check(*bias, x, 1, "bias");
  STD_TORCH_CHECK(bias->size(0) == s.O, "acda: bias needs one number per output channel.");
}

ConvGeometry checked_conv(const Tensor& x, const Tensor& weight, int64_t sy, int64_t sx, int64_t py, int64_t px) {
  check_floating(x);
  check(x, x, 4, "x");
  check(weight, x, 4, "weight");
  ConvGeometry s{x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), weight.size(2), 0, 0, sy, sx, py, px};
  STD_TORCH_CHECK(
      sy > 0 && sx > 0 && s.C > 0 && s.O > 0 && s.k > 0 && weight.size(1) == s.C && weight.size(3) == s.k &&
          s.H + 2 * py >= s.k && s.W + 2 * px >= s.k,
      "acda: the weight needs (O, C, k, k), and the map room for one window.");
  s.P = (s.H + 2 * py - s.k) / sy + 1, s.Q = (s.W + 2 * px - s.k) / sx + 1;
  return s;
}

// Side of the window, then stride, padding and dilation, each vertical and horizontal; groups.
struct WindowNumbers {
  int64_t k, sy, sx, py, px, dy, dx, groups;
};

// A layer and the two convolutions of its Φ.
struct LayerGeometry {
  Geometry s;
  ConvGeometry squeeze, predict;
};

LayerGeometry checked_layer(
    const Tensor& x, const Tensor& squeeze, const Tensor& predict, const std::optional<Tensor>& bases, const Tensor& mixing,
    const std::optional<Tensor>& bias, const WindowNumbers& w, bool planar) {
  check_floating(x);
  check(x, x, 4, "x");
  check(squeeze, x, 4, "squeeze");
  check(predict, x, 4, "predict");
  check(mixing, x, 3, "mixing");
  if (bases) check(*bases, x, 3, "bases");
  const int64_t C = x.size(planar ? 1 : 3), H = x.size(planar ? 2 : 1), W = x.size(planar ? 3 : 2);
  const int64_t hidden = squeeze.size(0), M = mixing.size(2), L = bases ? bases->size(0) : w.k * w.k;
  STD_TORCH_CHECK(
      C > 0 && hidden > 0 && M > 0 && L > 0 && H > 0 && W > 0 && squeeze.size(1) == C && squeeze.size(2) == 1 &&
          squeeze.size(3) == 1 && predict.size(0) == M * L && predict.size(1) == hidden && predict.size(2) == 3 &&
          predict.size(3) == 3,
      "acda: squeeze needs (hidden, C, 1, 1), and predict (M * L, hidden, 3, 3).");
  check_window(w.k, w.sy, w.sx, w.py, w.px, w.dy, w.dx, w.groups);
  STD_TORCH_CHECK(w.k % 2 == 1, "acda: a window with a centre needs an odd side.");
  STD_TORCH_CHECK(
      H + 2 * w.py > w.dy * (w.k - 1) && W + 2 * w.px > w.dx * (w.k - 1), "acda: the map needs room for one window.");
  const int64_t P = (H + 2 * w.py - w.dy * (w.k - 1) - 1) / w.sy + 1, Q = (W + 2 * w.px - w.dx * (w.k - 1) - 1) / w.sx + 1;
  const Geometry s{x.size(0), C,    H,    W,        mixing.size(0),    M,    L,     w.k, P, Q, w.sy, w.sx, w.py,
                   w.px,      w.dy, w.dx, w.groups, bases.has_value(), true, planar};
  check_parameters(s, bases, mixing);
  check_bias(s, x, bias);
  // The windows of the 3×3 have the centres of the layer's.
  const int64_t margin_y = w.py - w.dy * (w.k - 1) / 2 + 1, margin_x = w.px - w.dx * (w.k - 1) / 2 + 1;
  return {s, {s.B, H, W, C, hidden, 1, H, W, 1, 1, 0, 0}, {s.B, H, W, hidden, M * L, 3, P, Q, w.sy, w.sx, margin_y, margin_x}};
}

// Whether the gradient of Φ's 3×3 is a convolution of the same kind, and there are statistics to take.
void check_trainable(const LayerGeometry& g) {
  const ConvGeometry& s = g.predict;
  STD_TORCH_CHECK(
      s.B > 0 && s.sy == 1 && s.sx == 1 && s.py < s.k && s.px < s.k,
      "acda: a layer is trained as one operator with stride 1, small padding, and at least one image.");
}

void check_vector(const Tensor& t, const Tensor& like, int64_t count, const char* name) {
  check(t, like, 1, name);
  STD_TORCH_CHECK(t.size(0) == count, "acda: ", name, " needs ", count, " numbers.");
}

void check_map(const Tensor& t, const Tensor& like, int64_t B, int64_t P, int64_t Q, int64_t O, const char* name) {
  check(t, like, 4, name);
  STD_TORCH_CHECK(
      t.size(0) == B && t.size(1) == P && t.size(2) == Q && t.size(3) == O, "acda: ", name, " needs another shape.");
}

void check_facts(const Tensor& t, const Tensor& like, int64_t channels) {
  check(t, like, 2, "the statistics");
  STD_TORCH_CHECK(t.size(0) == 4 && t.size(1) == channels, "acda: the statistics need four rows.");
}

}  // namespace
