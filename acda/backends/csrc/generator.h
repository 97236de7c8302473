// The steps of the generator: a convolution with zeros outside the map (negative padding: the map cropped), then
// normalisation and Tanh. Included after
// kernel.h, once per instruction set. Pixel-major as everything there: x (B, H, W, C), weight (O, C, k, k), y (B, P, Q, O).
//
// A library has all of it; but these layers are narrow, and in the tiles of the operator they run at its rate.

template <class T>
struct Conv {
  using Tiles = Kernel<T>;
  using Vec = typename Tiles::Vec;
  static constexpr int64_t kLanes = Tiles::kLanes, kPanel = Tiles::kPanel, kTall = Tiles::kTall;
  using Fast = Winograd<T>;
  static constexpr int64_t kSegment = 10 * kTall;  // pixels that share a panel of weights and the cached input

  // The weights as panels of outputs: within one, the window row by row, each as long as k pixels of input. Transposed:
  // those of the convolution that carries a gradient back to the input; s is that convolution's shape.
  struct Packed {
    Scratch<T> weight, shift;
    int64_t panels, panel_size;

    Packed(const ConvShape& s, const T* from, const T* shift_in, bool transposed = false) {
      panels = (s.O + kPanel - 1) / kPanel, panel_size = s.k * s.k * s.C * kPanel;
      weight.resize(panels * panel_size, true);
      shift.resize(panels * kPanel, true);
      if (shift_in) std::copy_n(shift_in, s.O, shift.data());
      const int64_t taps = s.k * s.k;
      for (int64_t o = 0; o < s.O; ++o)
        for (int64_t c = 0; c < s.C; ++c)
          for (int64_t t = 0; t < taps; ++t)
            weight[o / kPanel * panel_size + (t * s.C + c) * kPanel + o % kPanel] =
                transposed ? from[(c * s.O + o) * taps + taps - 1 - t] : from[(o * s.C + c) * taps + t];
    }
  };

  // Output rows first to last, counted over all images.
  struct Walk {
    const ConvShape& s;
    const Packed& packed;
    const T* x;
    T* y;
    bool squash;                 // Tanh at the end
    Scratch<T> ring;             // the rows under the window with their padding, where there is any
    std::vector<int64_t> held;   // which input row of all images each slot of the ring holds
    std::vector<const T*> rows;  // none where it is outside the map

    Walk(const ConvShape& s, const Packed& packed, const T* x, T* y, bool squash)
        : s(s), packed(packed), x(x), y(y), squash(squash), held(s.k, -1), rows(s.k) {
      if (s.px > 0) ring.resize(s.k * (s.W + 2 * s.px) * s.C, false);
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
      if (h < 0 || h >= s.H) return nullptr;
      const T* from = x + (image * s.H + h) * s.W * s.C;
      if (s.px <= 0) return from - s.px * s.C;
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
        if (rows[i])
          Tiles::template multiply<R, N>(
              acc, s.k * s.C, rows[i] + q * s.sx * s.C, s.sx * s.C, 1, weight + i * s.k * s.C * kPanel, kPanel);
      for (int r = 0; r < R; ++r, to += s.O) {
        T row[N * kLanes];
        for (int n = 0; n < N; ++n) *(Vec*)(row + n * kLanes) = squash ? Squash<T>::of(acc[r][n]) : acc[r][n];
        std::copy_n(row, width, to);
      }
    }
  };

  // The gradient of the weights from output rows first to last: for each tap, gradients times the input below it. The
  // sums lie as panels of inputs; within one, tap by tap, a row for each output.
  struct WeightGradient {
    const ConvShape& s;
    const T *x, *grad;
    int64_t panels, wide, block;  // wide: a padded row; block: output rows at a time, enough pixels to fill a tile's time
    Scratch<T> sums, panel;

    WeightGradient(const ConvShape& s, const T* x, const T* grad) : s(s), x(x), grad(grad) {
      panels = (s.C + kPanel - 1) / kPanel, wide = s.W + 2 * s.px;
      block = std::max<int64_t>(1, 120 / s.Q);
      sums.resize(panels * s.k * s.k * s.O * kPanel, true);
      panel.resize(((block - 1) * s.sy + s.k) * wide * kPanel, true);
    }

    ACDA_TARGET void run(int64_t first, int64_t last) {
      for (int64_t row = first; row < last;) {
        const int64_t p = row % s.P, count = std::min({block, s.P - p, last - row});
        for (int64_t n = 0; n < panels; ++n) {
          const int64_t width = std::min(kPanel, s.C - n * kPanel);
          load(row / s.P, p * s.sy - s.py, (count - 1) * s.sy + s.k, n * kPanel, width);
          width > kLanes ? outputs<2>(row, count, n) : outputs<1>(row, count, n);
        }
        row += count;
      }
    }

    // Some rows of the input, `width` of its channels, with zeros around the map.
    ACDA_TARGET void load(int64_t image, int64_t top, int64_t rows, int64_t channel, int64_t width) {
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t h = top + i, margin = std::max<int64_t>(s.px, 0), crop = std::max<int64_t>(-s.px, 0);
        const bool inside = h >= 0 && h < s.H;
        T* to = panel.data() + (i * wide + margin) * kPanel;
        const T* from = x + ((image * s.H + h) * s.W + crop) * s.C + channel;
        for (int64_t w = crop; w < s.W - crop; ++w, to += kPanel, from += s.C)
          for (int64_t c = 0; c < width; ++c) to[c] = inside ? from[c] : T(0);
      }
    }

    template <int N>
    ACDA_TARGET void outputs(int64_t row, int64_t count, int64_t n) {
      for (int64_t o = 0; o < s.O; o += kTall) {
        switch (s.O - o) {
          case 1: taps<1, N>(row, count, n, o); break;
          case 2: taps<2, N>(row, count, n, o); break;
          case 3: taps<3, N>(row, count, n, o); break;
          case 4: taps<4, N>(row, count, n, o); break;
          case 5: taps<5, N>(row, count, n, o); break;
          default: taps<kTall, N>(row, count, n, o);
        }
      }
    }

    template <int R, int N>
    ACDA_TARGET void taps(int64_t row, int64_t count, int64_t n, int64_t o) {
      for (int64_t t = 0; t < s.k * s.k; ++t)
        tile<R, N>(row, count, t, o, sums.data() + (n * s.k * s.k + t) * s.O * kPanel);
    }

    template <int R, int N>
    ACDA_TARGET void tile(int64_t row, int64_t count, int64_t t, int64_t o, T* to) {
      Vec acc[R][N] = {};  // of this block alone: a sum that runs over all of them loses its digits
      for (int64_t i = 0; i < count; ++i)
        Tiles::template multiply<R, N>(
            acc, s.Q, grad + (row + i) * s.Q * s.O + o, 1, s.O,
            panel.data() + ((i * s.sy + t / s.k) * wide + t % s.k) * kPanel, s.sx * kPanel);
      for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) *(Vec*)(to + (o + r) * kPanel + n * kLanes) += acc[r][n];
    }
  };
};

// y = tanh(weight (u - mean) / sqrt(var + eps) + bias) channel by channel, over pixels of O channels.
template <class T>
struct NormTanh {
  using Vec = typename Kernel<T>::Vec;
  static constexpr int64_t kLanes = Kernel<T>::kLanes;
  // Pixels whose sums are formed in T; the sums of blocks are in double. Short ones where joining two blocks is cheap.
  static constexpr int64_t kBlock = 64, kShortBlock = 8;

  // Mean and squared deviations of the pixels that it has seen.
  struct Statistics {
    int64_t O, seen = 0;
    std::vector<double> mean, squares;
    std::vector<T> sum, squared, around;

    explicit Statistics(int64_t O) : O(O), mean(O), squares(O), sum(O), squared(O), around(O) {}

    ACDA_TARGET void add(const T* u, int64_t pixels) {
      for (; pixels > 0; pixels -= kBlock, u += kBlock * O) add_block(u, std::min(pixels, kBlock));
    }

    // Around the block's own mean, so that a large mean costs no digits; then joined with what was seen before. That mean
    // is rounded: what the deviations from it sum up to is the rest of it.
    ACDA_TARGET void add_block(const T* u, int64_t count) {
      std::fill(sum.begin(), sum.end(), T(0));
      for (int64_t i = 0; i < count; ++i)
        for (int64_t o = 0; o < O; ++o) sum[o] += u[i * O + o];
      for (int64_t o = 0; o < O; ++o) around[o] = sum[o] / T(count), sum[o] = squared[o] = 0;
      for (int64_t i = 0; i < count; ++i)
        for (int64_t o = 0; o < O; ++o) {
          const T d = u[i * O + o] - around[o];
          sum[o] += d;
          squared[o] += d * d;
        }
      for (int64_t o = 0; o < O; ++o) {
        const double rest = double(sum[o]) / count;
        join(o, count, around[o] + rest, squared[o] - rest * sum[o]);
      }
      seen += count;
    }

    void add(const Statistics& other) {
      if (!other.seen) return;
      for (int64_t o = 0; o < O; ++o) join(o, other.seen, other.mean[o], other.squares[o]);
      seen += other.seen;
    }

    void join(int64_t o, int64_t count, double their_mean, double their_squares) {
      const double all = double(seen + count), apart = their_mean - mean[o];
      mean[o] += apart * count / all;
      squares[o] += their_squares + apart * apart * (double(seen) * count / all);
    }
  };

  // The mean is subtracted first: u * scale and mean * scale may be large where their difference is small.
  ACDA_TARGET static void forward(
      int64_t O, const T* u, const T* mean, const T* scale, const T* shift, T* y, int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i, u += O, y += O) {
      int64_t o = 0;
      for (; o + kLanes <= O; o += kLanes)
        *(Vec*)(y + o) = Squash<T>::of(
            (*(const Vec*)(u + o) - *(const Vec*)(mean + o)) * *(const Vec*)(scale + o) + *(const Vec*)(shift + o));
      if (o == O) continue;
      T rest[kLanes] = {};
      for (int64_t j = o; j < O; ++j) rest[j - o] = (u[j] - mean[j]) * scale[j] + shift[j];
      *(Vec*)rest = Squash<T>::of(*(const Vec*)rest);
      std::copy_n(rest, O - o, y + o);
    }
  }

  // With g the gradient before Tanh: the sums of g, and of g times the distance from the mean.
  ACDA_TARGET static void sums(
      int64_t O, const T* grad, const T* y, const T* u, const T* mean, int64_t pixels, double* sum, double* product) {
    std::vector<T> a(O), b(O);
    for (; pixels > 0; pixels -= kShortBlock) {
      const int64_t count = std::min(pixels, kShortBlock);
      std::fill(a.begin(), a.end(), T(0));
      std::fill(b.begin(), b.end(), T(0));
      for (int64_t i = 0; i < count; ++i, grad += O, y += O, u += O)
        for (int64_t o = 0; o < O; ++o) {
          const T g = grad[o] * (T(1) - y[o] * y[o]);
          a[o] += g;
          b[o] += g * (u[o] - mean[o]);
        }
      for (int64_t o = 0; o < O; ++o) sum[o] += a[o], product[o] += b[o];
    }
  }

  // du = scale g - offset - slope (u - mean).
  ACDA_TARGET static void backward(
      int64_t O, const T* grad, const T* y, const T* u, const T* mean, const T* scale, const T* offset, const T* slope, T* du,
      int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i, grad += O, y += O, u += O, du += O)
      for (int64_t o = 0; o < O; ++o)
        du[o] = scale[o] * grad[o] * (T(1) - y[o] * y[o]) - offset[o] - slope[o] * (u[o] - mean[o]);
  }
};
