// 3×3 convolutions of stride 1 by Winograd's algorithm F(4×4, 3×3): a quarter of the multiplications. Included after
// kernel.h, once per instruction set. Pixel-major as everything there: x (B, H, W, C), weight (O, C, 3, 3), y (B, P, Q, O).
//
// The output is cut into tiles of 4×4 pixels. The 6×6 input pixels under a tile become 36 points; at each of them the
// convolution is one product of a row of C numbers with a matrix (C, O); the points of the outputs become 4×4 pixels.
// With d an input tile, g a filter and Y an output tile: Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A  (Lavin and Gray, 2016).
// Rounding depends on where in its tile a pixel lies: shifting the input shifts the output to rounding, not bit for bit.

template <class T>
struct Winograd {
  using Tiles = Kernel<T>;
  using Vec = typename Tiles::Vec;
  static constexpr int64_t kLanes = Tiles::kLanes, kPanel = Tiles::kPanel;
  static constexpr int64_t kStep = 4, kSide = 6, kPoints = kSide * kSide;
  static constexpr int64_t kApart = 16;          // between points, lest they all fall into the same sets of the first cache
  static constexpr int64_t kCached = 56 * 1024;  // numbers: the points of a block of tiles stay in the second cache
  static constexpr int64_t kDeep = 48;           // tiles that the sums of a gradient take in before they are stored

  // Whether the arithmetic is less than that of the direct form, the transform of the filters included.
  static bool pays(const ConvShape& s) {
    const int64_t tiles = s.B * ((s.P + kStep - 1) / kStep) * ((s.Q + kStep - 1) / kStep);
    return s.k == 3 && s.sy == 1 && s.sx == 1 && s.C >= kLanes && 50 * tiles + 400 < 9 * s.B * s.P * s.Q;
  }

  // ---------------------------------------------------------------- the transforms, along one axis

  // Bᵀ d
  ACDA_TARGET static inline __attribute__((always_inline)) void input_points(const Vec* d, Vec* to, int64_t step) {
    const Vec even = d[4] - T(4) * d[2], odd = d[3] - T(4) * d[1], near = d[4] - d[2], far = T(2) * (d[3] - d[1]);
    to[0] = T(4) * d[0] - T(5) * d[2] + d[4];
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = near + far;
    to[4 * step] = near - far;
    to[5 * step] = T(4) * d[1] - T(5) * d[3] + d[5];
  }

  // Aᵀ m
  ACDA_TARGET static inline __attribute__((always_inline)) void output_pixels(const Vec* m, Vec* to, int64_t step) {
    const Vec plus = m[1] + m[2], minus = m[1] - m[2], plus2 = m[3] + m[4], minus2 = m[3] - m[4];
    to[0] = m[0] + plus + plus2;
    to[step] = minus + T(2) * minus2;
    to[2 * step] = plus + T(4) * plus2;
    to[3 * step] = minus + T(8) * minus2 + m[5];
  }

  // A y
  ACDA_TARGET static inline __attribute__((always_inline)) void gradient_points(const Vec* y, Vec* to, int64_t step) {
    const Vec even = y[0] + y[2], odd = y[1] + y[3], even2 = y[0] + T(4) * y[2], odd2 = T(2) * y[1] + T(8) * y[3];
    to[0] = y[0];
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = even2 + odd2;
    to[4 * step] = even2 - odd2;
    to[5 * step] = y[3];
  }

  // G g
  ACDA_TARGET static inline __attribute__((always_inline)) void filter_points(const Vec* g, Vec* to, int64_t step) {
    const Vec even = (g[0] + g[2]) * T(1. / 6), odd = g[1] * T(1. / 6);
    const Vec even2 = g[0] * T(1. / 24) + g[2] * T(1. / 6), odd2 = g[1] * T(1. / 12);
    to[0] = g[0] * T(1. / 4);
    to[step] = -even - odd;
    to[2 * step] = odd - even;
    to[3 * step] = even2 + odd2;
    to[4 * step] = even2 - odd2;
    to[5 * step] = g[2];
  }

  // Gᵀ s
  ACDA_TARGET static inline __attribute__((always_inline)) void filter_taps(const Vec* s, Vec* to, int64_t step) {
    const Vec both = s[1] + s[2], both2 = s[3] + s[4];
    to[0] = s[0] * T(1. / 4) - both * T(1. / 6) + both2 * T(1. / 24);
    to[step] = (s[2] - s[1]) * T(1. / 6) + (s[3] - s[4]) * T(1. / 12);
    to[2 * step] = (both2 - both) * T(1. / 6) + s[5];
  }

  // ---------------------------------------------------------------- tiles and points

  // Tiles are counted over all images; a block of them is worked on at a time.
  struct Grid {
    int64_t down, across, tiles, block, blocks;

    Grid(const ConvShape& s, int64_t most)
        : down((s.P + kStep - 1) / kStep), across((s.Q + kStep - 1) / kStep), tiles(s.B * down * across) {
      block = std::min(tiles, std::max<int64_t>(Tiles::kTall, most / Tiles::kTall * Tiles::kTall));
      blocks = (tiles + block - 1) / block;
    }
    static Grid for_forward(const ConvShape& s) { return Grid(s, std::min<int64_t>(48, kCached / (kPoints * s.C))); }
    static Grid for_gradient(const ConvShape& s) { return Grid(s, kDeep); }
    int64_t image(int64_t tile) const { return tile / (across * down); }
    int64_t row(int64_t tile) const { return tile / across % down * kStep; }
    int64_t column(int64_t tile) const { return tile % across * kStep; }
  };

  // A map (B, height, width, channels), and the room that the points of a block of its tiles take: (36, block, stride).
  struct Map {
    const T* data;
    int64_t height, width, channels, stride, point;
    Scratch<T> points, nothing, tail;

    Map(const T* data, int64_t height, int64_t width, int64_t channels, int64_t block)
        : data(data), height(height), width(width), channels(channels), stride(Tiles::up(channels)) {
      point = block * stride + kApart;
      points.resize(kPoints * point, false);
      nothing.resize(stride, true);
      tail.resize(kPoints * kLanes, true);
    }

    // Tiles of N×N pixels, of which tile t's first lies at its first output pixel minus (up, left).
    template <int N, void (*Transform)(const Vec*, Vec*, int64_t)>
    ACDA_TARGET void load(const Grid& grid, int64_t first, int64_t count, int64_t up, int64_t left) {
      for (int64_t t = 0; t < count; ++t) {
        const T* from[N][N];
        const int64_t image = grid.image(first + t), top = grid.row(first + t) - up, begin = grid.column(first + t) - left;
        for (int64_t i = 0; i < N; ++i)
          for (int64_t j = 0; j < N; ++j) {
            const int64_t h = top + i, w = begin + j;
            const bool inside = h >= 0 && h < height && w >= 0 && w < width;
            from[i][j] = inside ? data + ((image * height + h) * width + w) * channels : nothing.data();
          }
        T* to = points.data() + t * stride;
        int64_t c = 0;
        for (; c + kLanes <= channels; c += kLanes) transform<N, Transform>(from, c, to + c);
        if (c == channels) continue;
        for (int64_t i = 0; i < N; ++i)
          for (int64_t j = 0; j < N; ++j) {
            T* rest = tail.data() + (i * N + j) * kLanes;
            std::copy_n(from[i][j] + c, channels - c, rest);
            from[i][j] = rest;
          }
        transform<N, Transform>(from, 0, to + c);
      }
    }

    template <int N, void (*Transform)(const Vec*, Vec*, int64_t)>
    ACDA_TARGET inline __attribute__((always_inline)) void transform(const T* const (&from)[N][N], int64_t c, T* to) {
      Vec half[kSide][N], line[N], done[kSide];
      for (int64_t j = 0; j < N; ++j) {
        for (int64_t i = 0; i < N; ++i) line[i] = *(const Vec*)(from[i][j] + c);
        Transform(line, &half[0][j], N);
      }
      for (int64_t i = 0; i < kSide; ++i) {
        Transform(half[i], done, 1);
        for (int64_t j = 0; j < kSide; ++j) *(Vec*)(to + (i * kSide + j) * point) = done[j];
      }
    }
  };

  // ---------------------------------------------------------------- the convolution

  // The points of the filters as panels of outputs, (panels, 36, C, kPanel), and the shifts. Transposed: those of the
  // convolution that carries a gradient back to the input; s is that convolution's shape.
  struct Packed {
    Scratch<T> points, shift;
    int64_t panels, point, panel_size;

    Packed(const ConvShape& s, const T* weight, const T* shift_in, bool transposed = false) {
      panels = (s.O + kPanel - 1) / kPanel, point = s.C * kPanel, panel_size = kPoints * point;
      points.resize(panels * panel_size, false);
      shift.resize(panels * kPanel, true);
      if (shift_in) std::copy_n(shift_in, s.O, shift.data());
      torch::stable::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) pack(s, weight, n, transposed);
      });
    }

    ACDA_TARGET void pack(const ConvShape& s, const T* weight, int64_t n, bool transposed) {
      for (int64_t c = 0; c < s.C; ++c)
        for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
          T taps[9][kLanes] = {};
          for (int64_t i = 0; i < std::min(kLanes, s.O - n * kPanel - lane); ++i) {
            const int64_t o = n * kPanel + lane + i;
            const T* from = weight + (transposed ? c * s.O + o : o * s.C + c) * 9;
            for (int64_t t = 0; t < 9; ++t) taps[t][i] = from[transposed ? 8 - t : t];
          }
          Vec column[3], half[kSide][3], done[kSide];
          for (int64_t v = 0; v < 3; ++v) {
            for (int64_t u = 0; u < 3; ++u) column[u] = *(const Vec*)taps[3 * u + v];
            filter_points(column, &half[0][v], 3);
          }
          T* to = points.data() + n * panel_size + c * kPanel + lane;
          for (int64_t i = 0; i < kSide; ++i) {
            filter_points(half[i], done, 1);
            for (int64_t j = 0; j < kSide; ++j) *(Vec*)(to + (i * kSide + j) * point) = done[j];
          }
        }
    }
  };

  // Blocks of tiles first to last.
  struct Walk {
    const ConvShape& s;
    const Packed& packed;
    const Grid& grid;
    T* y;
    bool squash;  // Tanh at the end
    Map input;
    int64_t point;
    Scratch<T> outputs;  // the points of one panel of outputs, (36, block, kPanel)

    Walk(const ConvShape& s, const Packed& packed, const Grid& grid, const T* x, T* y, bool squash)
        : s(s), packed(packed), grid(grid), y(y), squash(squash), input(x, s.H, s.W, s.C, grid.block) {
      point = grid.block * kPanel + kApart;
      outputs.resize(kPoints * point, false);
    }

    ACDA_TARGET void run(int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t tile = block * grid.block, count = std::min(grid.block, grid.tiles - tile);
        input.template load<kSide, input_points>(grid, tile, count, s.py, s.px);
        for (int64_t n = 0; n < packed.panels; ++n) {
          const int64_t width = std::min(kPanel, s.O - n * kPanel);
          for (int64_t p = 0; p < kPoints; ++p)
            Tiles::product(
                count, s.C, input.points.data() + p * input.point, input.stride, 1,
                packed.points.data() + n * packed.panel_size + p * packed.point, kPanel, nullptr, false,
                outputs.data() + p * point, kPanel, width > kLanes ? kPanel : kLanes);
          for (int64_t t = 0; t < count; ++t)
            for (int64_t lane = 0; lane < width; lane += kLanes)
              store(tile + t, outputs.data() + t * kPanel + lane, n * kPanel + lane, std::min(kLanes, width - lane));
        }
      }
    }

    // The 4×4 pixels of a tile, or those that the map has, for up to one vector of channels from `o` on.
    ACDA_TARGET void store(int64_t tile, const T* from, int64_t o, int64_t width) {
      const Vec shift = *(const Vec*)(packed.shift.data() + o);
      Vec half[kStep][kSide], line[kSide], pixel[kStep];
      for (int64_t j = 0; j < kSide; ++j) {
        for (int64_t i = 0; i < kSide; ++i) line[i] = *(const Vec*)(from + (i * kSide + j) * point);
        output_pixels(line, &half[0][j], kSide);
      }
      const int64_t top = grid.row(tile), left = grid.column(tile), rows = std::min(kStep, s.P - top);
      const int64_t columns = std::min(kStep, s.Q - left);
      T* to = y + ((grid.image(tile) * s.P + top) * s.Q + left) * s.O + o;
      for (int64_t i = 0; i < rows; ++i, to += s.Q * s.O) {
        output_pixels(half[i], pixel, 1);
        for (int64_t j = 0; j < columns; ++j) {
          const Vec value = squash ? Squash<T>::of(pixel[j] + shift) : pixel[j] + shift;
          if (width == kLanes) *(Vec*)(to + j * s.O) = value;
          else
            for (int64_t lane = 0; lane < width; ++lane) to[j * s.O + lane] = value[lane];
        }
      }
    }
  };

  // ---------------------------------------------------------------- the gradient of its filters

  // Sums over blocks of tiles first to last, at the points: (36, C, stride of the outputs).
  struct WeightGradient {
    const ConvShape& s;
    const Grid& grid;
    Map input, output;
    Scratch<T> sums;

    WeightGradient(const ConvShape& s, const Grid& grid, const T* x, const T* grad)
        : s(s), grid(grid), input(x, s.H, s.W, s.C, grid.block), output(grad, s.P, s.Q, s.O, grid.block) {
      sums.resize(kPoints * s.C * output.stride, true);
    }

    ACDA_TARGET void run(int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t tile = block * grid.block, count = std::min(grid.block, grid.tiles - tile);
        input.template load<kSide, input_points>(grid, tile, count, s.py, s.px);
        output.template load<kStep, gradient_points>(grid, tile, count, 0, 0);
        for (int64_t p = 0; p < kPoints; ++p)
          for (int64_t o = 0; o < output.stride; o += kPanel)
            Tiles::product(
                s.C, count, input.points.data() + p * input.point, 1, input.stride,
                output.points.data() + p * output.point + o, output.stride, nullptr, true,
                sums.data() + p * s.C * output.stride + o, output.stride, std::min(kPanel, output.stride - o));
      }
    }

    // Gᵀ s G of channel c, where s are these sums and those of the other threads.
    template <class Shares>
    ACDA_TARGET static void finish(const ConvShape& s, const Shares& shares, int64_t c, T* weight) {
      const int64_t stride = Tiles::up(s.O);
      for (int64_t o = 0; o < s.O; o += kLanes) {
        Vec half[3][kSide], line[kSide], done[3];
        for (int64_t j = 0; j < kSide; ++j) {
          for (int64_t i = 0; i < kSide; ++i) {
            line[i] = Vec{};
            for (const auto& share : shares)
              line[i] += *(const Vec*)(share->sums.data() + ((i * kSide + j) * s.C + c) * stride + o);
          }
          filter_taps(line, &half[0][j], kSide);
        }
        for (int64_t u = 0; u < 3; ++u) {
          filter_taps(half[u], done, 1);
          for (int64_t v = 0; v < 3; ++v)
            for (int64_t i = 0; i < std::min(kLanes, s.O - o); ++i) weight[((o + i) * s.C + c) * 9 + u * 3 + v] = done[v][i];
        }
      }
    }
  };
};
