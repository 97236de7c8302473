// acda's CPU kernel, on the stable ABI of torch 2.10: one binary serves the later ones (2.13 and 2.15 were tried).
//
// The operators take pixel-major, dense tensors of one dtype (float or double); acda/backends/native sees to that.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "adaptive.h"
#include "checks.h"
#include "dispatch.h"
#include "generator.h"
#include "layer.h"
#include "tensors.h"
#include "training.h"

namespace {

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
  const LayerGeometry g = checked_layer(x, squeeze, predict, bases, mixing, bias, {k, sy, sx, py, px, dy, dx, groups}, planar);
  const Geometry& s = g.s;
  check_vector(squeeze_shift, x, squeeze.size(0), "squeeze's shift");
  check_vector(predict_shift, x, predict.size(0), "predict's shift");
  Tensor y = planar ? torch::stable::new_empty(x, {s.B, s.O, s.P, s.Q}) : torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O});
  if (s.B == 0) return y;
  ConvGeometry first = g.squeeze, second = g.predict;
  first.B = second.B = 1;  // an image at a time
  dispatch(x, [&]<class Set, class T>() {
    const Layer<Set, T> layer(
        s, {first, in<T>(squeeze), in<T>(squeeze_shift)}, {second, in<T>(predict), in<T>(predict_shift)}, in<T>(x),
        in<T>(bases), in<T>(mixing), in<T>(bias), out<T>(y));
    layer.run();
  });
  return y;
}

// A normalisation of Φ as the operators are given it.
struct NormOf {
  const Tensor &weight, &bias;
  const std::optional<Tensor>&mean, &var;
  double eps;

  template <class T>
  Norm<T> over(int64_t rows, int64_t width) const {
    return {weight.size(0), rows, width, in<T>(weight), in<T>(bias), in<T>(mean), in<T>(var), eps};
  }
  void check_all(const Tensor& x, int64_t channels, const char* name) const {
    check_vector(weight, x, channels, name);
    check_vector(bias, x, channels, name);
    STD_TORCH_CHECK(mean.has_value() == var.has_value(), "acda: mean and var come together.");
    if (mean) check_vector(*mean, x, channels, name), check_vector(*var, x, channels, name);
  }
};

template <class T>
LayerParts<T> parts_of(
    const LayerGeometry& g, const Tensor& squeeze, const NormOf& first, const Tensor& predict, const NormOf& second,
    const std::optional<Tensor>& bases, const Tensor& mixing, const std::optional<Tensor>& bias) {
  const Geometry& s = g.s;
  return {
      s,
      g.squeeze,
      g.predict,
      in<T>(squeeze),
      in<T>(predict),
      in<T>(bases),
      in<T>(mixing),
      in<T>(bias),
      first.over<T>(s.B * s.H, s.W),
      second.over<T>(s.B * s.P, s.Q)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> adaptive_layer_training(
    Tensor x, Tensor squeeze, Tensor weight1, Tensor bias1, std::optional<Tensor> mean1, std::optional<Tensor> var1,
    double eps1, Tensor predict, Tensor weight2, Tensor bias2, std::optional<Tensor> mean2, std::optional<Tensor> var2,
    double eps2, std::optional<Tensor> bases, Tensor mixing, std::optional<Tensor> bias, int64_t k, int64_t sy, int64_t sx,
    int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const LayerGeometry g = checked_layer(x, squeeze, predict, bases, mixing, bias, {k, sy, sx, py, px, dy, dx, groups}, false);
  const Geometry& s = g.s;
  check_trainable(g);
  const NormOf first{weight1, bias1, mean1, var1, eps1}, second{weight2, bias2, mean2, var2, eps2};
  first.check_all(x, squeeze.size(0), "the first normalisation");
  second.check_all(x, predict.size(0), "the second normalisation");
  Tensor y = torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O});
  Tensor u1 = torch::stable::new_empty(x, {s.B, s.H, s.W, squeeze.size(0)});
  Tensor u2 = torch::stable::new_empty(x, {s.B, s.P, s.Q, predict.size(0)});
  Tensor facts1 = torch::stable::new_empty(x, {Norm<float>::kFacts, squeeze.size(0)});
  Tensor facts2 = torch::stable::new_empty(x, {Norm<float>::kFacts, predict.size(0)});
  dispatch(x, [&]<class Set, class T>() {
    train_forward<Set, T>(
        parts_of<T>(g, squeeze, first, predict, second, bases, mixing, bias), in<T>(x), out<T>(y), out<T>(u1), out<T>(facts1),
        out<T>(u2), out<T>(facts2));
  });
  return {y, u1, facts1, u2, facts2};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> adaptive_layer_training_backward(
    Tensor grad, Tensor u1, Tensor facts1, Tensor u2, Tensor facts2, Tensor x, Tensor squeeze, Tensor weight1, Tensor bias1,
    bool fixed1, double eps1, Tensor predict, Tensor weight2, Tensor bias2, bool fixed2, double eps2,
    std::optional<Tensor> bases, Tensor mixing, int64_t k, int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy,
    int64_t dx, int64_t groups, bool input) {
  const LayerGeometry g =
      checked_layer(x, squeeze, predict, bases, mixing, std::nullopt, {k, sy, sx, py, px, dy, dx, groups}, false);
  const Geometry& s = g.s;
  check_trainable(g);
  check_map(grad, x, s.B, s.P, s.Q, s.O, "the gradient");
  check_map(u1, x, s.B, s.H, s.W, squeeze.size(0), "u1");
  check_map(u2, x, s.B, s.P, s.Q, predict.size(0), "u2");
  check_facts(facts1, x, squeeze.size(0));
  check_facts(facts2, x, predict.size(0));
  const std::optional<Tensor> none;
  const NormOf first{weight1, bias1, none, none, eps1}, second{weight2, bias2, none, none, eps2};
  first.check_all(x, squeeze.size(0), "the first normalisation");
  second.check_all(x, predict.size(0), "the second normalisation");
  const int64_t hidden = squeeze.size(0), maps = predict.size(0);
  Tensor d_x = torch::stable::new_empty(x, {s.B, s.H, s.W, s.C});
  Tensor d_squeeze = torch::stable::new_zeros(x, {hidden, s.C, 1, 1});
  Tensor d_weight1 = torch::stable::new_empty(x, {hidden}), d_bias1 = torch::stable::new_empty(x, {hidden});
  Tensor d_predict = torch::stable::new_zeros(x, {maps, hidden, 3, 3});
  Tensor d_weight2 = torch::stable::new_empty(x, {maps}), d_bias2 = torch::stable::new_empty(x, {maps});
  Tensor d_mixing = torch::stable::new_zeros(x, {s.O, s.C / groups, s.M}), d_bias = torch::stable::new_zeros(x, {s.O});
  dispatch(x, [&]<class Set, class T>() {
    const LayerGradients<T> d{out<T>(d_x),       out<T>(d_squeeze), out<T>(d_weight1), out<T>(d_bias1), out<T>(d_predict),
                              out<T>(d_weight2), out<T>(d_bias2),   out<T>(d_mixing),  out<T>(d_bias),  input};
    train_backward<Set, T>(
        parts_of<T>(g, squeeze, first, predict, second, bases, mixing, std::nullopt), fixed1, fixed2, in<T>(grad), in<T>(x),
        in<T>(u1), in<T>(facts1), in<T>(u2), in<T>(facts2), d);
  });
  return {d_x, d_squeeze, d_weight1, d_bias1, d_predict, d_weight2, d_bias2, d_mixing, d_bias};
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
      if (input) convolve<Set, T>(turned(s), in<T>(grad), in<T>(weight), nullptr, false, out<T>(dx), true);
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
  dispatch(u, [&]<class Set, class T>() {
    const auto norm = NormOf{weight, bias, mean, var, eps}.over<T>(u.size(0) * u.size(1), u.size(2));
    std::vector<T> facts(Norm<T>::kFacts * norm.channels);
    find_facts<Set, T>(norm, in<T>(u), facts.data());
    squash<Set, T>(norm, facts.data(), in<T>(u), out<T>(y));
    std::copy_n(norm.mean_in(facts.data()), norm.channels, out<T>(own_mean));
    std::copy_n(norm.var_in(facts.data()), norm.channels, out<T>(own_var));
  });
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
  const std::optional<Tensor> none;
  dispatch(u, [&]<class Set, class T>() {
    const auto norm = NormOf{weight, weight, none, none, eps}.over<T>(u.size(0) * u.size(1), u.size(2));
    squash_back<Set, T>(
        norm, fixed, in<T>(mean), in<T>(var), in<T>(grad), in<T>(y), in<T>(u), out<T>(du), out<T>(dweight), out<T>(dbias));
  });
  return {du, dweight, dbias};
}

int64_t vector_bytes() { return int64_t(supported()); }

void poison_scratch(bool on) { poison = on; }

// Returns what it was.
bool use_winograd(bool on) { return winograd.exchange(on); }

int64_t sources() { return ACDA_SOURCES; }

}  // namespace

// The schemas are in acda/backends/native.
STABLE_TORCH_LIBRARY_IMPL(acda, CPU, m) {
  m.impl("adaptive_conv2d", TORCH_BOX(&adaptive_conv2d));
  m.impl("adaptive_conv2d_planar", TORCH_BOX(&adaptive_conv2d_planar));
  m.impl("adaptive_conv2d_backward", TORCH_BOX(&adaptive_conv2d_backward));
  m.impl("adaptive_layer", TORCH_BOX(&adaptive_layer));
  m.impl("adaptive_layer_training", TORCH_BOX(&adaptive_layer_training));
  m.impl("adaptive_layer_training_backward", TORCH_BOX(&adaptive_layer_training_backward));
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
