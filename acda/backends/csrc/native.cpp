// acda's CPU kernel, on the stable ABI of torch 2.10: one binary serves the later ones (2.13 and 2.15 were tried).
//
// The operators take pixel-major, dense tensors of one dtype (float or double); acda/backends/native.py sees to that.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "adaptive.h"
#include "dispatch.h"
#include "generator.h"
#include "layer.h"
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

Tensor run_forward(
    const Geometry& s, const Tensor& x, const Tensor& alpha, const std::optional<Tensor>& bases,
    const std::optional<Tensor>& mixing, const std::optional<Tensor>& bias, Tensor y) {
  check_bias(s, x, bias);
  if (s.B == 0) return y;
  dispatch(x, [&]<class Set, class T>() {
    forward<Set, T>(s, in<T>(x), in<T>(alpha), in<T>(bases), in<T>(mixing), in<T>(bias), out<T>(y));
  });
  return y;
}

Tensor adaptive_conv2d(
    Tensor x, Tensor alpha, std::optional<Tensor> bases, std::optional<Tensor> mixing, std::optional<Tensor> bias, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const Geometry s = checked(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups);
  return run_forward(s, x, alpha, bases, mixing, bias, torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O}));
}

Tensor adaptive_conv2d_planar(
    Tensor x, Tensor alpha, std::optional<Tensor> bases, Tensor mixing, std::optional<Tensor> bias, int64_t k, int64_t sy,
    int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const Geometry s = checked(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups, true);
  return run_forward(s, x, alpha, bases, mixing, bias, torch::stable::new_empty(x, {s.B, s.O, s.P, s.Q}));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> adaptive_conv2d_backward(
    Tensor grad, Tensor x, Tensor alpha, std::optional<Tensor> bases, std::optional<Tensor> mixing, int64_t k, int64_t sy,
    int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const Geometry s = checked(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups);
  check(grad, x, 4, "the gradient");
  STD_TORCH_CHECK(
      grad.size(0) == s.B && grad.size(1) == s.P && grad.size(2) == s.Q && grad.size(3) == s.O,
      "acda: the gradient needs the output's shape.");
  Tensor d_x = torch::stable::new_empty(x, {s.B, s.H, s.W, s.C});
  Tensor d_alpha = torch::stable::new_empty(x, {s.B, s.P, s.Q, s.M, s.L});
  Tensor d_mixing = torch::stable::new_zeros(x, {mixing ? s.O : 0, s.C / groups, s.M});
  Tensor d_bias = torch::stable::new_zeros(x, {mixing ? s.O : 0});
  if (s.B > 0)
    dispatch(x, [&]<class Set, class T>() {
      backward<Set, T>(
          s, in<T>(grad), in<T>(x), in<T>(alpha), in<T>(bases), in<T>(mixing), out<T>(d_x), out<T>(d_alpha), out<T>(d_mixing),
          out<T>(d_bias));
    });
  return {d_x, d_alpha, d_mixing, d_bias};
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

Tensor run_conv(const ConvGeometry& s, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& shift, bool squash) {
  Tensor y = torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O});
  if (s.B > 0)
    dispatch(
        x, [&]<class Set, class T>() { convolve<Set, T>(s, in<T>(x), in<T>(weight), in<T>(shift), squash, out<T>(y), false); });
  return y;
}

Tensor conv2d_tanh(Tensor x, Tensor weight, Tensor shift, int64_t sy, int64_t sx, int64_t py, int64_t px) {
  const ConvGeometry s = checked_conv(x, weight, sy, sx, py, px);
  check(shift, x, 1, "shift");
  STD_TORCH_CHECK(shift.size(0) == s.O, "acda: the shift needs one number per output channel.");
  return run_conv(s, x, weight, shift, true);
}

Tensor conv2d(Tensor x, Tensor weight, int64_t py, int64_t px) {
  return run_conv(checked_conv(x, weight, 1, 1, py, px), x, weight, std::nullopt, false);
}

Tensor adaptive_layer(
    Tensor x, Tensor squeeze, Tensor squeeze_shift, Tensor predict, Tensor predict_shift, std::optional<Tensor> bases,
    Tensor mixing, std::optional<Tensor> bias, int64_t k, int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy,
    int64_t dx, int64_t groups, bool planar) {
  check_floating(x);
  check(x, x, 4, "x");
  check(squeeze, x, 4, "squeeze");
  check(predict, x, 4, "predict");
  check(squeeze_shift, x, 1, "squeeze's shift");
  check(predict_shift, x, 1, "predict's shift");
  check(mixing, x, 3, "mixing");
  if (bases) check(*bases, x, 3, "bases");
  const int64_t C = x.size(planar ? 1 : 3), H = x.size(planar ? 2 : 1), W = x.size(planar ? 3 : 2);
  const int64_t hidden = squeeze.size(0), M = mixing.size(2), L = bases ? bases->size(0) : k * k;
  STD_TORCH_CHECK(
      C > 0 && hidden > 0 && M > 0 && L > 0 && H > 0 && W > 0 && squeeze.size(1) == C && squeeze.size(2) == 1 &&
          squeeze.size(3) == 1 && predict.size(0) == M * L && predict.size(1) == hidden && predict.size(2) == 3 &&
          predict.size(3) == 3 && squeeze_shift.size(0) == hidden && predict_shift.size(0) == M * L,
      "acda: squeeze needs (hidden, C, 1, 1), predict (M * L, hidden, 3, 3), and each a shift per channel.");
  check_window(k, sy, sx, py, px, dy, dx, groups);
  STD_TORCH_CHECK(H + 2 * py > dy * (k - 1) && W + 2 * px > dx * (k - 1), "acda: the map needs room for one window.");
  const int64_t P = (H + 2 * py - dy * (k - 1) - 1) / sy + 1, Q = (W + 2 * px - dx * (k - 1) - 1) / sx + 1;
  const Geometry s{x.size(0), C,  H,  W,      mixing.size(0),    M,    L,     k, P, Q, sy, sx, py,
                   px,        dy, dx, groups, bases.has_value(), true, planar};
  check_parameters(s, bases, mixing);
  check_bias(s, x, bias);
  Tensor y = planar ? torch::stable::new_empty(x, {s.B, s.O, s.P, s.Q}) : torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O});
  if (s.B == 0) return y;
  // The windows of the 3×3 have the centres of the layer's.
  const int64_t margin_y = py - dy * (k - 1) / 2 + 1, margin_x = px - dx * (k - 1) / 2 + 1;
  const ConvGeometry first{1, H, W, C, hidden, 1, H, W, 1, 1, 0, 0};
  const ConvGeometry second{1, H, W, hidden, M * L, 3, P, Q, sy, sx, margin_y, margin_x};
  dispatch(x, [&]<class Set, class T>() {
    const Layer<Set, T> layer(
        s, {first, in<T>(squeeze), in<T>(squeeze_shift)}, {second, in<T>(predict), in<T>(predict_shift)}, in<T>(x),
        in<T>(bases), in<T>(mixing), in<T>(bias), out<T>(y));
    layer.run();
  });
  return y;
}

std::tuple<Tensor, Tensor> conv2d_backward(Tensor grad, Tensor x, Tensor weight, int64_t py, int64_t px, bool input) {
  const ConvGeometry s = checked_conv(x, weight, 1, 1, py, px);
  check(grad, x, 4, "the gradient");
  STD_TORCH_CHECK(
      py < s.k && px < s.k && grad.size(0) == s.B && grad.size(1) == s.P && grad.size(2) == s.Q && grad.size(3) == s.O,
      "acda: the gradient needs the output's shape, and the padding to be smaller than the window.");
  Tensor dx = torch::stable::new_empty(x, {input ? s.B : 0, s.H, s.W, s.C});
  Tensor dweight = torch::stable::new_zeros(x, {s.O, s.C, s.k, s.k});
  if (s.B > 0)
    dispatch(x, [&]<class Set, class T>() {
      // The gradient of the input is a convolution too: of the gradient, with the filters turned round.
      const ConvGeometry back{s.B, s.P, s.Q, s.O, s.C, s.k, s.H, s.W, 1, 1, s.k - 1 - s.py, s.k - 1 - s.px};
      if (input) convolve<Set, T>(back, in<T>(grad), in<T>(weight), nullptr, false, out<T>(dx), true);
      differentiate<Set, T>(s, in<T>(x), in<T>(grad), out<T>(dweight));
    });
  return {dx, dweight};
}

std::tuple<Tensor, Tensor, Tensor> norm_tanh(
    Tensor u, Tensor weight, Tensor bias, std::optional<Tensor> mean, std::optional<Tensor> var, double eps) {
  check_floating(u);
  check(u, u, 4, "u");
  check_channels(weight, u, "weight");
  check_channels(bias, u, "bias");
  STD_TORCH_CHECK(mean.has_value() == var.has_value(), "acda: mean and var come together.");
  STD_TORCH_CHECK(mean || u.numel() > 0, "acda: the statistics of nothing are not defined.");
  if (mean) check_channels(*mean, u, "mean"), check_channels(*var, u, "var");
  Tensor y = torch::stable::new_empty(u, {u.size(0), u.size(1), u.size(2), u.size(3)});
  Tensor own_mean = torch::stable::new_empty(u, {u.size(3)}), own_var = torch::stable::new_empty(u, {u.size(3)});
  const Channels c{weight, bias, mean, var, eps};
  dispatch(u, [&]<class Set, class T>() { normalise<Set, T>(u, c, y, own_mean, own_var); });
  return {y, own_mean, own_var};
}

std::tuple<Tensor, Tensor, Tensor> norm_tanh_backward(
    Tensor grad, Tensor y, Tensor u, Tensor weight, Tensor mean, Tensor var, double eps, bool fixed) {
  check_floating(u);
  check(u, u, 4, "u");
  for (const Tensor* t : {&grad, &y}) {
    check(*t, u, 4, "the gradient");
    for (int64_t i = 0; i < 4; ++i) STD_TORCH_CHECK(t->size(i) == u.size(i), "acda: the gradient needs the output's shape.");
  }
  check_channels(weight, u, "weight");
  check_channels(mean, u, "mean");
  check_channels(var, u, "var");
  Tensor du = torch::stable::new_empty(u, {u.size(0), u.size(1), u.size(2), u.size(3)});
  Tensor dweight = torch::stable::new_empty(u, {u.size(3)}), dbias = torch::stable::new_empty(u, {u.size(3)});
  dispatch(
      u, [&]<class Set, class T>() { normalise_back<Set, T>(grad, y, u, weight, mean, var, eps, fixed, du, dweight, dbias); });
  return {du, dweight, dbias};
}

int64_t vector_bytes() { return int64_t(supported()); }

void poison_scratch(bool on) { poison = on; }

// Returns what it was.
bool use_winograd(bool on) { return winograd.exchange(on); }

int64_t sources() { return ACDA_SOURCES; }

}  // namespace

// The schemas are in acda/backends/native.py.
STABLE_TORCH_LIBRARY_IMPL(acda, CPU, m) {
  m.impl("adaptive_conv2d", TORCH_BOX(&adaptive_conv2d));
  m.impl("adaptive_conv2d_planar", TORCH_BOX(&adaptive_conv2d_planar));
  m.impl("adaptive_conv2d_backward", TORCH_BOX(&adaptive_conv2d_backward));
  m.impl("adaptive_layer", TORCH_BOX(&adaptive_layer));
  m.impl("conv2d_tanh", TORCH_BOX(&conv2d_tanh));
  m.impl("conv2d", TORCH_BOX(&conv2d));
  m.impl("conv2d_backward", TORCH_BOX(&conv2d_backward));
  m.impl("norm_tanh", TORCH_BOX(&norm_tanh));
  m.impl("norm_tanh_backward", TORCH_BOX(&norm_tanh_backward));
}

STABLE_TORCH_LIBRARY_IMPL(acda, CompositeExplicitAutograd, m) {
  m.impl("vector_bytes", TORCH_BOX(&vector_bytes));
  m.impl("poison_scratch", TORCH_BOX(&poison_scratch));
  m.impl("use_winograd", TORCH_BOX(&use_winograd));
  m.impl("sources", TORCH_BOX(&sources));
}
