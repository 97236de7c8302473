// One step of the generator without gradients: y = tanh(W * x + shift), zeros outside the map. Included after kernel.h, once
// per instruction set. Pixel-major as everything there: x (B, H, W, C), weight (O, C, k, k), y (B, P, Q, O), dense.
//
// A library convolution followed by Tanh does the same in two passes; these layers are narrow, and in the tiles of the
// operator they run at its rate.

template <class T>
struct SquashedConv {
  using Tiles = Kernel<T>;
  using Vec = typename Tiles::Vec;
  static constexpr int64_t kLanes = Tiles::kLanes, kPanel = Tiles::kPanel, kTall = Tiles::kTall;
  static constexpr int64_t kSegment = 10 * kTall;  // pixels that share a panel of weights and the cached input

  // x P(x²) / Q(x²), fitted to a relative error of 2e-8 up to where tanh is 1 in float; NaN stays NaN.
  ACDA_TARGET static inline __attribute__((always_inline)) Vec squash(Vec x) {
    if constexpr (sizeof(T) == sizeof(float)) {
      const Vec end = Vec{} + T(9.02);
      x = x > end ? end : x < -end ? -end : x;
      const Vec u = x * x;
      const Vec p = (((T(1.331987647e-8) * u + T(2.058410333e-5)) * u + T(3.494074210e-3)) * u + T(1.337975197e-1)) * u +
                    T(9.999999792e-1);
      const Vec q = (((T(7.762360900e-7) * u + T(3.283156370e-4)) * u + T(2.587122602e-2)) * u + T(4.671306726e-1)) * u + T(1);
      const Vec y = x * p / q, one = Vec{} + T(1);
      return y > one ? one : y < -one ? -one : y;
    } else {
      Vec y;
      for (int64_t i = 0; i < kLanes; ++i) y[i] = std::tanh(x[i]);
      return y;
    }
  }

  // The weights as panels of outputs: within one, the window row by row, each as long as k pixels of input.
  struct Packed {
    Scratch<T> weight, shift;
    int64_t panels, panel_size;

    Packed(const ConvShape& s, const T* from, const T* shift_in) {
      panels = (s.O + kPanel - 1) / kPanel, panel_size = s.k * s.k * s.C * kPanel;
      weight.resize(panels * panel_size, true);
      shift.resize(panels * kPanel, true);
      std::copy_n(shift_in, s.O, shift.data());
      for (int64_t o = 0; o < s.O; ++o)
        for (int64_t c = 0; c < s.C; ++c)
          for (int64_t t = 0; t < s.k * s.k; ++t)
            weight[o / kPanel * panel_size + (t * s.C + c) * kPanel + o % kPanel] = from[(o * s.C + c) * s.k * s.k + t];
    }
  };

  // Output rows first to last, counted over all images.
  struct Walk {
    const ConvShape& s;
    const Packed& packed;
    const T* x;
    T* y;
    Scratch<T> ring;             // the rows under the window with their padding, where there is any
    std::vector<int64_t> held;   // which input row of all images each slot of the ring holds
    Scratch<T> nothing;          // a row outside the map
    std::vector<const T*> rows;

    Walk(const ConvShape& s, const Packed& packed, const T* x, T* y)
        : s(s), packed(packed), x(x), y(y), held(s.k, -1), rows(s.k) {
      if (s.px) ring.resize(s.k * (s.W + 2 * s.px) * s.C, false);
      if (s.py) nothing.resize((s.W + 2 * s.px) * s.C, true);
    }

    ACDA_TARGET void run(int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        for (int64_t i = 0; i < s.k; ++i) rows[i] = input_row(row / s.P, row % s.P * s.sy - s.py + i);
        for (int64_t q = 0; q < s.Q; q += kSegment)
          for (int64_t n = 0; n < packed.panels; ++n)
            pixels(q, std::min(s.Q, q + kSegment), n, y + row * s.Q * s.O + n * kPanel);
      }
    }

    ACDA_TARGET const T* input_row(int64_t image, int64_t h) {
      if (h < 0 || h >= s.H) return nothing.data();
      const T* from = x + (image * s.H + h) * s.W * s.C;
      if (!s.px) return from;
      T* to = ring.data() + h % s.k * (s.W + 2 * s.px) * s.C;
      if (held[h % s.k] != image * s.H + h) {
        held[h % s.k] = image * s.H + h;
        std::fill_n(to, s.px * s.C, T(0));
        std::copy_n(from, s.W * s.C, to + s.px * s.C);
        std::fill_n(to + (s.px + s.W) * s.C, s.px * s.C, T(0));
      }
      return to;
    }

    ACDA_TARGET void pixels(int64_t q, int64_t end, int64_t panel, T* to) {
      const int64_t width = std::min(kPanel, s.O - panel * kPanel);
      for (; q < end; q += kTall)
        width > kLanes ? tiles<2>(q, std::min(end - q, int64_t(kTall)), panel, to + q * s.O, width)
                       : tiles<1>(q, std::min(end - q, int64_t(kTall)), panel, to + q * s.O, width);
    }

    template <int N>
    ACDA_TARGET void tiles(int64_t q, int64_t count, int64_t panel, T* to, int64_t width) {
      switch (count) {
        case 1: return tile<1, N>(q, panel, to, width);
        case 2: return tile<2, N>(q, panel, to, width);
        case 3: return tile<3, N>(q, panel, to, width);
        case 4: return tile<4, N>(q, panel, to, width);
        case 5: return tile<5, N>(q, panel, to, width);
        default: return tile<6, N>(q, panel, to, width);
      }
    }

    template <int R, int N>
    ACDA_TARGET void tile(int64_t q, int64_t panel, T* to, int64_t width) {
      Vec acc[R][N];
      for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) acc[r][n] = *(const Vec*)(packed.shift.data() + panel * kPanel + n * kLanes);
      const T* weight = packed.weight.data() + panel * packed.panel_size;
      for (int64_t i = 0; i < s.k; ++i)
        Tiles::template multiply<R, N>(
            acc, s.k * s.C, rows[i] + q * s.sx * s.C, s.sx * s.C, 1, weight + i * s.k * s.C * kPanel, kPanel);
      for (int r = 0; r < R; ++r, to += s.O) {
        T row[N * kLanes];
        for (int n = 0; n < N; ++n) *(Vec*)(row + n * kLanes) = squash(acc[r][n]);
        std::copy_n(row, width, to);
      }
    }
  };
};
