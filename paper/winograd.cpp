// 3×3 convolutions with a border of zeros by Winograd's algorithm, F(4×4, 3×3): a quarter of the multiplications.
//
// Pixel-major float maps x (B, H, W, C), y (B, H, W, O), weights (O, C, 3, 3); C and O are multiples of 16. The map is cut into
// tiles of 4×4 output pixels. A tile is the 6×6 input pixels below it, brought to 36 points, at each of which the
// convolution is one product of a row of C with a matrix (C, O); from the points of the outputs come the 4×4 pixels.
// With d an input tile, g a filter and Y an output tile: Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A  (Lavin and Gray, 2016).
// Compiled for the machine that it runs on, and used by winograd.py.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using torch::stable::Tensor;
typedef float Vec __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int64_t kLanes = 8, kPanel = 16, kTall = 6, kSide = 6, kPoints = 36, kStep = 4;
constexpr int64_t kTiles = 24;   // at a time: their points stay in the second cache
constexpr int64_t kApart = 16;   // between points, lest they all fall into the same places of the first

Vec& vec(float* p) { return *(Vec*)p; }
const Vec& vec(const float* p) { return *(const Vec*)p; }

// ---------------------------------------------------------------- the three transforms, along one axis

void input_points(const Vec* d, Vec* to, int64_t step) {  // Bᵀ d
  const Vec even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1], near = d[4] - d[2], far = 2 * (d[3] - d[1]);
  to[0] = 4 * d[0] - 5 * d[2] + d[4];
  to[step] = even + odd;
  to[2 * step] = even - odd;
  to[3 * step] = near + far;
  to[4 * step] = near - far;
  to[5 * step] = 4 * d[1] - 5 * d[3] + d[5];
}

void output_pixels(const Vec* m, Vec* to, int64_t step) {  // Aᵀ m
  const Vec plus = m[1] + m[2], minus = m[1] - m[2], plus2 = m[3] + m[4], minus2 = m[3] - m[4];
  to[0] = m[0] + plus + plus2;
  to[step] = minus + 2 * minus2;
  to[2 * step] = plus + 4 * plus2;
  to[3 * step] = minus + 8 * minus2 + m[5];
}

void gradient_points(const Vec* y, Vec* to, int64_t step) {  // A y
  const Vec even = y[0] + y[2], odd = y[1] + y[3], even2 = y[0] + 4 * y[2], odd2 = 2 * y[1] + 8 * y[3];
  to[0] = y[0];
  to[step] = even + odd;
  to[2 * step] = even - odd;
  to[3 * step] = even2 + odd2;
  to[4 * step] = even2 - odd2;
  to[5 * step] = y[3];
}

constexpr double kG[kSide][3] = {{1. / 4, 0, 0},           {-1. / 6, -1. / 6, -1. / 6}, {-1. / 6, 1. / 6, -1. / 6},
                                 {1. / 24, 1. / 12, 1. / 6}, {1. / 24, -1. / 12, 1. / 6},  {0, 0, 1}};

// ---------------------------------------------------------------- tiles

struct Map {
  int64_t B, H, W, down, across;  // down, across: tiles

  Map(int64_t B, int64_t H, int64_t W) : B(B), H(H), W(W), down((H + 3) / kStep), across((W + 3) / kStep) {}
  int64_t tiles() const { return B * down * across; }
  int64_t row(int64_t tile) const { return tile / across % down * kStep; }
  int64_t column(int64_t tile) const { return tile % across * kStep; }
  // Number of a pixel, or -1 outside the map.
  int64_t pixel(int64_t tile, int64_t i, int64_t j) const {
    const int64_t h = row(tile) + i, w = column(tile) + j;
    return h < 0 || h >= H || w < 0 || w >= W ? -1 : (tile / (across * down) * H + h) * W + w;
  }
};

int64_t points_size(int64_t C) { return kTiles * C + kApart; }

// Bring `count` tiles of side N, which begin `before` their first output pixel, to their points: (36, kTiles, C).
template <int N, void (*Transform)(const Vec*, Vec*, int64_t)>
void to_points(const Map& map, const float* x, int64_t C, int64_t first, int64_t count, int64_t before, float* to) {
  const std::vector<float> nothing(C, 0.f);
  for (int64_t t = 0; t < count; ++t) {
    const float* from[N][N];
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < N; ++j) {
        const int64_t pixel = map.pixel(first + t, i - before, j - before);
        from[i][j] = pixel < 0 ? nothing.data() : x + pixel * C;
      }
    for (int64_t c = 0; c < C; c += kLanes) {
      Vec half[kSide][N], line[N], point[kSide];
      for (int64_t j = 0; j < N; ++j) {
        for (int64_t i = 0; i < N; ++i) line[i] = vec(from[i][j] + c);
        Transform(line, &half[0][j], N);
      }
      for (int64_t i = 0; i < kSide; ++i) {
        Transform(half[i], point, 1);
        for (int64_t j = 0; j < kSide; ++j) vec(to + (i * kSide + j) * points_size(C) + t * C + c) = point[j];
      }
    }
  }
}

// ---------------------------------------------------------------- products

// acc[r][n] = sum over k of a[r, k] b[k, n]; added to `to` or stored there.
template <int R>
void product(
    int64_t K, const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, float* to, int64_t to_row, bool add) {
  Vec acc[R][2] = {};
  for (int64_t k = 0; k < K; ++k, a += a_step, b += b_step) {
    const Vec left = vec(b), right = vec(b + kLanes);
    for (int r = 0; r < R; ++r) {
      const float s = a[r * a_row];
      acc[r][0] += s * left;
      acc[r][1] += s * right;
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < 2; ++n) {
      Vec& place = vec(to + r * to_row + n * kLanes);
      place = add ? place + acc[r][n] : acc[r][n];
    }
}

void products(
    int64_t rows, int64_t K, const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, float* to,
    int64_t to_row, bool add) {
  int64_t r = 0;
  for (; r + kTall <= rows; r += kTall)
    product<kTall>(K, a + r * a_row, a_row, a_step, b, b_step, to + r * to_row, to_row, add);
  for (; r + 2 <= rows; r += 2) product<2>(K, a + r * a_row, a_row, a_step, b, b_step, to + r * to_row, to_row, add);
  for (; r < rows; ++r) product<1>(K, a + r * a_row, a_row, a_step, b, b_step, to + r * to_row, to_row, add);
}

// ---------------------------------------------------------------- the convolution

// G g Gᵀ of every filter, as panels of outputs: (O / 16, 36, C, 16). Back: of the convolution that carries a gradient to the input,
// whose filters are turned round, with inputs and outputs exchanged; C and O are that convolution's.
std::vector<float> filter_points(const float* weight, int64_t C, int64_t O, bool back) {
  std::vector<float> points(kPoints * C * O);
  torch::stable::parallel_for(0, O, 8, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t c = 0; c < C; ++c) {
        const float* g = weight + (back ? c * O + o : o * C + c) * 9;
        double half[kSide][3];
        for (int64_t i = 0; i < kSide; ++i)
          for (int64_t j = 0; j < 3; ++j) {
            half[i][j] = 0;
            for (int64_t u = 0; u < 3; ++u) half[i][j] += kG[i][u] * g[back ? 8 - (u * 3 + j) : u * 3 + j];
          }
        for (int64_t i = 0; i < kSide; ++i)
          for (int64_t j = 0; j < kSide; ++j)
            points[((o / kPanel * kPoints + i * kSide + j) * C + c) * kPanel + o % kPanel] =
                float(half[i][0] * kG[j][0] + half[i][1] * kG[j][1] + half[i][2] * kG[j][2]);
      }
  });
  return points;
}

// `count` tiles of kPanel channels, from their points (36, kTiles, 16) to pixels of y, whose first channel `y` points at.
void from_points(const Map& map, const float* points, int64_t first, int64_t count, float* y, int64_t O) {
  for (int64_t t = 0; t < count; ++t)
    for (int64_t c = 0; c < kPanel; c += kLanes) {
      Vec half[kStep][kSide], line[kSide], pixel[kStep];
      for (int64_t j = 0; j < kSide; ++j) {
        for (int64_t i = 0; i < kSide; ++i) line[i] = vec(points + (i * kSide + j) * points_size(kPanel) + t * kPanel + c);
        output_pixels(line, &half[0][j], kSide);
      }
      for (int64_t i = 0; i < kStep; ++i) {
        output_pixels(half[i], pixel, 1);
        for (int64_t j = 0; j < kStep; ++j)
          if (const int64_t at = map.pixel(first + t, i, j); at >= 0) vec(y + at * O + c) = pixel[j];
      }
    }
}

void check(const Tensor& map) {
  STD_TORCH_CHECK(
      map.dim() == 4 && map.is_contiguous() && map.is_cpu() && map.scalar_type() == torch::headeronly::ScalarType::Float &&
          map.size(3) % kPanel == 0,
      "winograd: a map needs to be dense, pixel-major and float, on the CPU, with channels in sixteens.");
}

Tensor convolve(Tensor x, Tensor weight, bool back) {
  check(x);
  STD_TORCH_CHECK(
      weight.dim() == 4 && weight.is_contiguous() && weight.scalar_type() == x.scalar_type() &&
          weight.size(back ? 0 : 1) == x.size(3) && weight.size(back ? 1 : 0) % kPanel == 0 && weight.size(2) == 3 &&
          weight.size(3) == 3,
      "winograd: the weight needs to be dense, (O, C, 3, 3).");
  const int64_t C = x.size(3), O = weight.size(back ? 1 : 0);
  const Map map(x.size(0), x.size(1), x.size(2));
  Tensor y = torch::stable::new_empty(x, {map.B, map.H, map.W, O});
  const float* from = static_cast<const float*>(x.const_data_ptr());
  float* to = static_cast<float*>(y.mutable_data_ptr());
  const std::vector<float> filters = filter_points(static_cast<const float*>(weight.const_data_ptr()), C, O, back);
  torch::stable::parallel_for(0, (map.tiles() + kTiles - 1) / kTiles, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> inputs(kPoints * points_size(C)), outputs(kPoints * points_size(kPanel));
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kTiles, count = std::min(kTiles, map.tiles() - first);
      to_points<kSide, input_points>(map, from, C, first, count, 1, inputs.data());
      for (int64_t panel = 0; panel < O / kPanel; ++panel) {
        for (int64_t p = 0; p < kPoints; ++p)
          products(
              count, C, inputs.data() + p * points_size(C), C, 1, filters.data() + (panel * kPoints + p) * C * kPanel, kPanel,
              outputs.data() + p * points_size(kPanel), kPanel, false);
        from_points(map, outputs.data(), first, count, to + panel * kPanel, O);
      }
    }
  });
  return y;
}

// ---------------------------------------------------------------- the gradient of its filters

// Gᵀ s G of the sums at the points, (36, C, O), added up over the threads.
void to_filters(const std::vector<std::vector<float>>& sums, int64_t C, int64_t O, float* weight) {
  torch::stable::parallel_for(0, C, 8, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t o = 0; o < O; ++o) {
        double half[3][kSide] = {};
        for (int64_t i = 0; i < kSide; ++i)
          for (int64_t j = 0; j < kSide; ++j) {
            double sum = 0;
            for (const auto& each : sums) sum += each[((i * kSide + j) * C + c) * O + o];
            for (int64_t u = 0; u < 3; ++u) half[u][j] += kG[i][u] * sum;
          }
        for (int64_t u = 0; u < 3; ++u)
          for (int64_t v = 0; v < 3; ++v) {
            double tap = 0;
            for (int64_t j = 0; j < kSide; ++j) tap += half[u][j] * kG[j][v];
            weight[(o * C + c) * 9 + u * 3 + v] = float(tap);
          }
      }
  });
}

Tensor filter_gradient(Tensor x, Tensor grad) {
  check(x);
  check(grad);
  for (int64_t i = 0; i < 3; ++i) STD_TORCH_CHECK(x.size(i) == grad.size(i), "winograd: the gradient needs the map's size.");
  const int64_t C = x.size(3), O = grad.size(3);
  const Map map(x.size(0), x.size(1), x.size(2));
  Tensor weight = torch::stable::new_empty(x, {O, C, 3, 3});
  const float* from = static_cast<const float*>(x.const_data_ptr());
  const float* above = static_cast<const float*>(grad.const_data_ptr());
  const int64_t blocks = (map.tiles() + kTiles - 1) / kTiles;
  const int64_t threads = std::max<int64_t>(1, std::min<int64_t>(torch::stable::get_num_threads(), blocks));
  std::vector<std::vector<float>> sums(threads);  // in shares, so that they repeat with the same number of threads
  torch::stable::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> inputs(kPoints * points_size(C)), outputs(kPoints * points_size(O));
    for (int64_t share = begin; share < end; ++share) {
      sums[share].resize(kPoints * C * O);
      for (int64_t block = blocks * share / threads; block < blocks * (share + 1) / threads; ++block) {
        const int64_t first = block * kTiles, count = std::min(kTiles, map.tiles() - first);
        to_points<kSide, input_points>(map, from, C, first, count, 1, inputs.data());
        to_points<kStep, gradient_points>(map, above, O, first, count, 0, outputs.data());
        for (int64_t p = 0; p < kPoints; ++p)
          for (int64_t o = 0; o < O; o += kPanel)
            products(
                C, count, inputs.data() + p * points_size(C), 1, C, outputs.data() + p * points_size(O) + o, O,
                sums[share].data() + p * C * O + o, O, true);
      }
    }
  });
  to_filters(sums, C, O, static_cast<float*>(weight.mutable_data_ptr()));
  return weight;
}

}  // namespace

STABLE_TORCH_LIBRARY(acda_winograd, m) {
  m.def("convolve(Tensor x, Tensor weight, bool back) -> Tensor");
  m.def("filter_gradient(Tensor x, Tensor grad) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(acda_winograd, CPU, m) {
  m.impl("convolve", TORCH_BOX(&convolve));
  m.impl("filter_gradient", TORCH_BOX(&filter_gradient));
}
