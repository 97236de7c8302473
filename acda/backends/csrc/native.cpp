// acda's CPU kernel, on the stable ABI of torch 2.10: one binary serves the later ones (2.13 and 2.15 were tried).
//
// The operators take pixel-major, dense tensors of one dtype (float or double); acda/backends/native.py sees to that.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A tap of the window.
struct Tap {
  int64_t row, column;
};

// The taps of one row of the window that do anything: `count` of them from `first` on, `before` in the rows above.
struct Span {
  int64_t first, count, before;
};

struct Shape {
  int64_t B, C, H, W, O, M, L, k, P, Q, sy, sx, py, px, dy, dx, groups;
  bool has_bases, has_mixing, planar;
  // Filled in by the kernel, in whole vectors of its instruction set; `merged` groups of the layer are one of its own.
  int64_t merged, group_channels, channels, group_z, z_size, taps, D_row, D_size, columns, ring_rows, segment, chunk;
  std::vector<Span> spans;  // one for each row of the window
  std::vector<Tap> live;    // all their taps, in order
};

struct ConvShape {
  int64_t B, H, W, C, O, k, P, Q, sy, sx, py, px;
};

// Tests fill scratch memory with NaN, to show that nothing is read before it is written.
std::atomic<bool> poison{false};

// Memory that a call needs for itself, aligned to cache lines.
template <class T>
class Scratch {
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory;

 public:
  void resize(int64_t count, bool zero) {
    const size_t bytes = (std::max<int64_t>(count, 1) * sizeof(T) + 63) / 64 * 64;
    memory.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!memory) throw std::bad_alloc();
    if (zero) std::fill_n(data(), count, T(0));
    else if (poison) std::fill_n(data(), count, std::numeric_limits<T>::quiet_NaN());
  }
  T* data() const { return memory.get(); }
  T& operator[](int64_t i) const { return memory.get()[i]; }
};

namespace baseline {
#define ACDA_TARGET
#define ACDA_VECTOR 16
#include "kernel.h"
#include "squash.h"
#include "winograd.h"
#include "generator.h"
#undef ACDA_TARGET
#undef ACDA_VECTOR
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
#define ACDA_TARGET __attribute__((target("avx2,fma")))
#define ACDA_VECTOR 32
#include "kernel.h"
#include "squash.h"
#include "winograd.h"
#include "generator.h"
#undef ACDA_TARGET
#undef ACDA_VECTOR
}  // namespace avx2

namespace avx512 {
#define ACDA_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define ACDA_VECTOR 64
#include "kernel.h"
#include "squash.h"
#include "winograd.h"
#include "generator.h"
#undef ACDA_TARGET
#undef ACDA_VECTOR
}  // namespace avx512
#endif

enum class Vectors { kBaseline, kAvx2, kAvx512 };

// ACDA_VECTORS=baseline or avx2 asks for less than the processor has, so that all of it can be tested on one.
Vectors supported() {
#if defined(__x86_64__)
  static const Vectors best = [] {
    const char* variable = std::getenv("ACDA_VECTORS");
    const std::string_view most = variable ? variable : "";
    __builtin_cpu_init();
    if (most == "baseline") return Vectors::kBaseline;
    if (most != "avx2" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
      return Vectors::kAvx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::kAvx2;
    return Vectors::kBaseline;
  }();
  return best;
#else
  return Vectors::kBaseline;
#endif
}

// Output rows of share `index` of `shares`. In the backward pass there is one for each thread, so that sums are formed in
// the same order, and results repeat, with the same number of threads.
std::pair<int64_t, int64_t> share(int64_t rows, int64_t shares, int64_t index) {
  return {rows * index / shares, rows * (index + 1) / shares};
}

int64_t threads_for(int64_t rows) {
  return std::max<int64_t>(1, std::min<int64_t>(torch::stable::get_num_threads(), rows));
}

// Walk over output rows that do not depend on each other. A thread takes part of what is left whenever it is free, ever
// smaller parts, so that a core which is busy with something else holds nobody up.
template <class MakeWalk>
void walk_freely(int64_t rows, MakeWalk make_walk) {
  const int64_t threads = threads_for(rows), parts = threads == 1 ? 1 : 2 * threads;
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    auto walk = make_walk();
    for (int64_t first = next; first < rows;) {
      const int64_t last = std::min(rows, first + std::max<int64_t>(2, (rows - first) / parts));
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
    for (int64_t i = begin; i < end; ++i) {
      const auto [first, last] = share(rows, threads, i);
      shares[i] = make_share(first, last);
    }
  });
  return shares;
}

template <template <class> class Kernel, class T>
void forward(Shape s, const T* x, const T* alpha, const T* bases, const T* mixing, const T* bias, T* y) {
  using K = Kernel<T>;
  K::fill_up(s, bases, false);
  typename K::Packed packed(s, bases, mixing, bias, false);
  walk_freely(s.B * s.P, [&] { return typename K::Walk(s, packed, x, alpha, nullptr, y, nullptr, nullptr); });
}

template <template <class> class Kernel, class T>
void backward(
    Shape s, const T* grad, const T* x, const T* alpha, const T* bases, const T* mixing, T* dx, T* dalpha, T* dmixing, T* dbias) {
  using K = Kernel<T>;
  K::fill_up(s, bases, true);
  typename K::Packed packed(s, bases, mixing, nullptr, true);
  std::vector<uint8_t> written(s.B * s.H);
  const auto walks = in_shares<typename K::Walk>(s.B * s.P, [&](int64_t first, int64_t last) {
    auto walk = std::make_unique<typename K::Walk>(s, packed, x, alpha, grad, nullptr, dx, dalpha);
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
  const int64_t C = K::seen_channels(s);
  torch::stable::parallel_for(0, s.O, 16, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (const auto& walk : walks) {
        dbias[o] += walk->dbias[o];
        for (int64_t m = 0; m < s.M; ++m)
          for (int64_t c = 0; c < C; ++c)
            dmixing[(o * C + c) * s.M + m] += walk->dA[o * s.group_z + m * s.group_channels + K::first_seen(s, o) + c];
      }
    }
  });
}

template <class T>
const T* in(const Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
const T* in(const std::optional<Tensor>& t) {
  return t ? in<T>(*t) : nullptr;
}
template <class T>
T* out(Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

Shape shape_of(
    const Tensor& x, const Tensor& alpha, const std::optional<Tensor>& bases, const std::optional<Tensor>& mixing, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups, bool planar) {
  Shape s{};
  s.planar = planar;
  s.B = x.size(0), s.C = x.size(planar ? 1 : 3), s.H = x.size(planar ? 2 : 1), s.W = x.size(planar ? 3 : 2);
  s.P = alpha.size(1), s.Q = alpha.size(2), s.M = alpha.size(3), s.L = alpha.size(4);
  s.k = k, s.sy = sy, s.sx = sx, s.py = py, s.px = px, s.dy = dy, s.dx = dx, s.groups = groups;
  s.has_bases = bases.has_value(), s.has_mixing = mixing.has_value();
  s.O = mixing ? mixing->size(0) : s.C * s.M;
  return s;
}

// The arguments, in the order of the operators' schemas.
struct Arguments {
  const Tensor &x, &alpha;
  const std::optional<Tensor>&bases, &mixing;
  Shape shape;
};

template <template <class> class Kernel, class T>
void forward_with(const Arguments& a, const std::optional<Tensor>& bias, Tensor& y) {
  forward<Kernel, T>(a.shape, in<T>(a.x), in<T>(a.alpha), in<T>(a.bases), in<T>(a.mixing), in<T>(bias), out<T>(y));
}

template <template <class> class Kernel, class T>
void backward_with(const Arguments& a, const Tensor& grad, Tensor& dx, Tensor& dalpha, Tensor& dmixing, Tensor& dbias) {
  backward<Kernel, T>(
      a.shape, in<T>(grad), in<T>(a.x), in<T>(a.alpha), in<T>(a.bases), in<T>(a.mixing), out<T>(dx), out<T>(dalpha),
      out<T>(dmixing), out<T>(dbias));
}

// Whether 3×3 convolutions may take Winograd's form, whose rounding depends on the place. ACDA_WINOGRAD=0 begins without.
std::atomic<bool> winograd{[] {
  const char* variable = std::getenv("ACDA_WINOGRAD");
  return !variable || std::string_view(variable) != "0";
}()};

// Transposed: the convolution that carries a gradient back to the input.
template <class Conv, class T>
void convolve(const ConvShape& s, const T* x, const T* weight, const T* shift, bool squash, T* y, bool transposed) {
  using Fast = typename Conv::Fast;
  if (winograd && std::is_same_v<T, float> && Fast::pays(s)) {
    const typename Fast::Packed packed(s, weight, shift, transposed);
    const auto grid = Fast::Grid::for_forward(s);
    walk_freely(grid.blocks, [&] { return typename Fast::Walk(s, packed, grid, x, y, squash); });
    return;
  }
  const typename Conv::Packed packed(s, weight, shift, transposed);
  walk_freely(s.B * s.P, [&] { return typename Conv::Walk(s, packed, x, y, squash); });
}

// The gradient of the weights, from zeros.
template <class Conv, class T>
void differentiate(const ConvShape& s, const T* x, const T* grad, T* dweight) {
  using Fast = typename Conv::Fast;
  if (winograd && std::is_same_v<T, float> && Fast::pays(s)) {
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
  using Sums = typename Conv::WeightGradient;
  const auto shares = in_shares<Sums>(s.B * s.P, [&](int64_t first, int64_t last) {
    auto sums = std::make_unique<Sums>(s, x, grad);
    sums->run(first, last);
    return sums;
  });
  constexpr int64_t kPanel = Conv::kPanel;
  for (const auto& sums : shares)
    for (int64_t o = 0; o < s.O; ++o)
      for (int64_t c = 0; c < s.C; ++c)
        for (int64_t t = 0; t < s.k * s.k; ++t)
          dweight[(o * s.C + c) * s.k * s.k + t] +=
              sums->sums[((c / kPanel * s.k * s.k + t) * s.O + o) * kPanel + c % kPanel];
}

template <template <class> class Conv, class T>
void convolve_with(
    const ConvShape& s, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& shift, bool squash, Tensor& y) {
  convolve<Conv<T>>(s, in<T>(x), in<T>(weight), in<T>(shift), squash, out<T>(y), false);
}

template <template <class> class Conv, class T>
void convolve_back_with(const ConvShape& s, const Tensor& grad, const Tensor& x, const Tensor& weight, Tensor& dx, Tensor& dweight) {
  // The gradient of the input is a convolution too: of the gradient, with the filters turned round.
  const ConvShape back{s.B, s.P, s.Q, s.O, s.C, s.k, s.H, s.W, 1, 1, s.k - 1 - s.py, s.k - 1 - s.px};
  if (dx.numel()) convolve<Conv<T>>(back, in<T>(grad), in<T>(weight), static_cast<const T*>(nullptr), false, out<T>(dx), true);
  differentiate<Conv<T>>(s, in<T>(x), in<T>(grad), out<T>(dweight));
}

// Numbers for each channel.
struct Channels {
  const Tensor &weight, &bias;
  const std::optional<Tensor>&mean, &var;
  double eps;
};

template <template <class> class NormTanh, class T>
void norm_tanh_with(const Tensor& u, const Channels& c, Tensor& y, Tensor& mean, Tensor& var) {
  using Statistics = typename NormTanh<T>::Statistics;
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
    NormTanh<T>::forward(
        O, in<T>(u) + first * width * O, means, scale.data(), shift.data(), out<T>(y) + first * width * O,
        (last - first) * width);
  });
}

template <template <class> class NormTanh, class T>
void norm_tanh_back_with(
    const Tensor& grad, const Tensor& y, const Tensor& u, const Tensor& weight, const Tensor& mean, const Tensor& var, double eps,
    bool fixed, Tensor& du, Tensor& dweight, Tensor& dbias) {
  const int64_t O = u.size(3), rows = u.size(0) * u.size(1), width = u.size(2);
  const T *means = in<T>(mean), *vars = in<T>(var);
  std::vector<double> sum(O), product(O);
  using Pair = std::pair<std::vector<double>, std::vector<double>>;
  for (const auto& part : in_shares<Pair>(rows, [&](int64_t first, int64_t last) {
         auto part = std::make_unique<Pair>(std::vector<double>(O), std::vector<double>(O));
         const int64_t at = first * width * O;
         NormTanh<T>::sums(
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
    NormTanh<T>::backward(
        O, in<T>(grad) + at, in<T>(y) + at, in<T>(u) + at, means, scale.data(), offset.data(), slope.data(), out<T>(du) + at,
        (last - first) * width);
  });
}

// choose_NAME<T>(…) is NAME_with of the best instruction set that this processor has.
#if defined(__x86_64__)
#define ACDA_CHOOSE(name, Kernel)                                              \
  template <class T, class... Rest>                                            \
  void choose_##name(Rest&&... rest) {                                         \
    switch (supported()) {                                                     \
      case Vectors::kAvx512: return name##_with<avx512::Kernel, T>(rest...);   \
      case Vectors::kAvx2: return name##_with<avx2::Kernel, T>(rest...);       \
      default: return name##_with<baseline::Kernel, T>(rest...);               \
    }                                                                          \
  }
#else
#define ACDA_CHOOSE(name, Kernel)                     \
  template <class T, class... Rest>                   \
  void choose_##name(Rest&&... rest) {                \
    return name##_with<baseline::Kernel, T>(rest...); \
  }
#endif
ACDA_CHOOSE(forward, Kernel)
ACDA_CHOOSE(backward, Kernel)
ACDA_CHOOSE(convolve, Conv)
ACDA_CHOOSE(convolve_back, Conv)
ACDA_CHOOSE(norm_tanh, NormTanh)
ACDA_CHOOSE(norm_tanh_back, NormTanh)
#undef ACDA_CHOOSE

void check_floating(const Tensor& x) {
  STD_TORCH_CHECK(
      x.scalar_type() == ScalarType::Float || x.scalar_type() == ScalarType::Double, "acda: float32 or float64 only.");
}

void check(const Tensor& t, const Tensor& like, int64_t dimensions, const char* name) {
  STD_TORCH_CHECK(
      t.dim() == dimensions && t.is_contiguous() && t.is_cpu() && t.scalar_type() == like.scalar_type(), "acda: ", name,
      " needs to be a dense ", dimensions, "-dimensional CPU tensor of the input's dtype; call acda.functional instead.");
}

Arguments checked(
    const Tensor& x, const Tensor& alpha, const std::optional<Tensor>& bases, const std::optional<Tensor>& mixing, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups, bool planar = false) {
  check_floating(x);
  check(x, x, 4, "x");
  check(alpha, x, 5, "coefficients");
  if (bases) check(*bases, x, 3, "bases");
  if (mixing) check(*mixing, x, 3, "mixing");
  const Shape s = shape_of(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups, planar);
  STD_TORCH_CHECK(k > 0 && sy > 0 && sx > 0 && dy > 0 && dx > 0 && py >= 0 && px >= 0 && groups > 0, "acda: bad window.");
  STD_TORCH_CHECK(
      s.C > 0 && s.O > 0 && s.M > 0 && s.L > 0 && s.C % groups == 0 && s.O % groups == 0 && alpha.size(0) == s.B,
      "acda: channels, atoms and groups do not fit together.");
  STD_TORCH_CHECK(
      s.H + 2 * py > dy * (k - 1) && s.W + 2 * px > dx * (k - 1) && s.P == (s.H + 2 * py - dy * (k - 1) - 1) / sy + 1 &&
          s.Q == (s.W + 2 * px - dx * (k - 1) - 1) / sx + 1,
      "acda: the coefficients need one set per output pixel.");
  STD_TORCH_CHECK(
      bases ? bases->size(0) == s.L && bases->size(1) == k && bases->size(2) == k : s.L == k * k,
      "acda: the bases need one k x k element per coefficient.");
  STD_TORCH_CHECK(
      !mixing || (mixing->size(1) == s.C / groups && mixing->size(2) == s.M), "acda: mixing needs (O, C/groups, M).");
  STD_TORCH_CHECK(mixing || groups == 1, "acda: without mixing there are no groups.");
  return {x, alpha, bases, mixing, s};
}

Tensor run_forward(const Arguments& a, const std::optional<Tensor>& bias, Tensor y) {
  if (bias) {
    check(*bias, a.x, 1, "bias");
    STD_TORCH_CHECK(bias->size(0) == a.shape.O, "acda: bias needs one number per output channel.");
  }
  if (a.shape.B == 0) return y;
  a.x.scalar_type() == ScalarType::Double ? choose_forward<double>(a, bias, y) : choose_forward<float>(a, bias, y);
  return y;
}

Tensor adaptive_conv2d(
    Tensor x, Tensor alpha, std::optional<Tensor> bases, std::optional<Tensor> mixing, std::optional<Tensor> bias, int64_t k,
    int64_t sy, int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const Arguments a = checked(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups);
  return run_forward(a, bias, torch::stable::new_empty(x, {a.shape.B, a.shape.P, a.shape.Q, a.shape.O}));
}

Tensor adaptive_conv2d_planar(
    Tensor x, Tensor alpha, std::optional<Tensor> bases, Tensor mixing, std::optional<Tensor> bias, int64_t k, int64_t sy,
    int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const std::optional<Tensor> given = mixing;
  const Arguments a = checked(x, alpha, bases, given, k, sy, sx, py, px, dy, dx, groups, true);
  return run_forward(a, bias, torch::stable::new_empty(x, {a.shape.B, a.shape.O, a.shape.P, a.shape.Q}));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> adaptive_conv2d_backward(
    Tensor grad, Tensor x, Tensor alpha, std::optional<Tensor> bases, std::optional<Tensor> mixing, int64_t k, int64_t sy,
    int64_t sx, int64_t py, int64_t px, int64_t dy, int64_t dx, int64_t groups) {
  const Arguments a = checked(x, alpha, bases, mixing, k, sy, sx, py, px, dy, dx, groups);
  const Shape& s = a.shape;
  check(grad, x, 4, "the gradient");
  STD_TORCH_CHECK(
      grad.size(0) == s.B && grad.size(1) == s.P && grad.size(2) == s.Q && grad.size(3) == s.O,
      "acda: the gradient needs the output's shape.");
  Tensor d_x = torch::stable::new_empty(x, {s.B, s.H, s.W, s.C});
  Tensor d_alpha = torch::stable::new_empty(x, {s.B, s.P, s.Q, s.M, s.L});
  Tensor d_mixing = torch::stable::new_zeros(x, {mixing ? s.O : 0, s.C / groups, s.M});
  Tensor d_bias = torch::stable::new_zeros(x, {mixing ? s.O : 0});
  if (s.B > 0)
    x.scalar_type() == ScalarType::Double ? choose_backward<double>(a, grad, d_x, d_alpha, d_mixing, d_bias)
                                          : choose_backward<float>(a, grad, d_x, d_alpha, d_mixing, d_bias);
  return {d_x, d_alpha, d_mixing, d_bias};
}

ConvShape checked_conv(const Tensor& x, const Tensor& weight, int64_t sy, int64_t sx, int64_t py, int64_t px) {
  check_floating(x);
  check(x, x, 4, "x");
  check(weight, x, 4, "weight");
  ConvShape s{x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), weight.size(2), 0, 0, sy, sx, py, px};
  STD_TORCH_CHECK(
      sy > 0 && sx > 0 && s.C > 0 && s.O > 0 && s.k > 0 && weight.size(1) == s.C &&
          weight.size(3) == s.k && s.H + 2 * py >= s.k && s.W + 2 * px >= s.k,
      "acda: the weight needs (O, C, k, k), and the map room for one window.");
  s.P = (s.H + 2 * py - s.k) / sy + 1, s.Q = (s.W + 2 * px - s.k) / sx + 1;
  return s;
}

Tensor run_conv(const ConvShape& s, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& shift, bool squash) {
  Tensor y = torch::stable::new_empty(x, {s.B, s.P, s.Q, s.O});
  if (s.B > 0)
    x.scalar_type() == ScalarType::Double ? choose_convolve<double>(s, x, weight, shift, squash, y)
                                          : choose_convolve<float>(s, x, weight, shift, squash, y);
  return y;
}

Tensor conv2d_tanh(Tensor x, Tensor weight, Tensor shift, int64_t sy, int64_t sx, int64_t py, int64_t px) {
  const ConvShape s = checked_conv(x, weight, sy, sx, py, px);
  check(shift, x, 1, "shift");
  STD_TORCH_CHECK(shift.size(0) == s.O, "acda: the shift needs one number per output channel.");
  return run_conv(s, x, weight, shift, true);
}

Tensor conv2d(Tensor x, Tensor weight, int64_t py, int64_t px) {
  return run_conv(checked_conv(x, weight, 1, 1, py, px), x, weight, std::nullopt, false);
}

std::tuple<Tensor, Tensor> conv2d_backward(Tensor grad, Tensor x, Tensor weight, int64_t py, int64_t px, bool input) {
  const ConvShape s = checked_conv(x, weight, 1, 1, py, px);
  check(grad, x, 4, "the gradient");
  STD_TORCH_CHECK(
      py < s.k && px < s.k && grad.size(0) == s.B && grad.size(1) == s.P && grad.size(2) == s.Q && grad.size(3) == s.O,
      "acda: the gradient needs the output's shape, and the padding to be smaller than the window.");
  Tensor dx = torch::stable::new_empty(x, {input ? s.B : 0, s.H, s.W, s.C});
  Tensor dweight = torch::stable::new_zeros(x, {s.O, s.C, s.k, s.k});
  if (s.B > 0)
    x.scalar_type() == ScalarType::Double ? choose_convolve_back<double>(s, grad, x, weight, dx, dweight)
                                          : choose_convolve_back<float>(s, grad, x, weight, dx, dweight);
  return {dx, dweight};
}

void check_channels(const Tensor& t, const Tensor& u, const char* name) {
  check(t, u, 1, name);
  STD_TORCH_CHECK(t.size(0) == u.size(3), "acda: ", name, " needs one number per channel.");
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
  u.scalar_type() == ScalarType::Double ? choose_norm_tanh<double>(u, c, y, own_mean, own_var)
                                        : choose_norm_tanh<float>(u, c, y, own_mean, own_var);
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
  u.scalar_type() == ScalarType::Double
      ? choose_norm_tanh_back<double>(grad, y, u, weight, mean, var, eps, fixed, du, dweight, dbias)
      : choose_norm_tanh_back<float>(grad, y, u, weight, mean, var, eps, fixed, du, dweight, dbias);
  return {du, dweight, dbias};
}

int64_t vector_bytes() {
  switch (supported()) {
    case Vectors::kAvx512: return 64;
    case Vectors::kAvx2: return 32;
    default: return 16;
  }
}

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
