// The fused operator for one instruction set: included once per set, inside a namespace, with
//   ACDA_TARGET   the function attribute that selects the instruction set
//   ACDA_VECTOR   bytes of a vector register
//
// Everything is pixel-major: x (B, H, W, C), alpha (B, P, Q, M, L), y (B, P, Q, O), dense; without gradients x and y may be
// planar, (B, C, H, W) and (B, O, P, Q), and are transposed on the way in and out. A thread takes a range of output
// rows and walks over it in chunks of pixels. Of the input it keeps the rows under its windows in a ring, with the zero
// padding in place and the channels of each group filled up to whole vectors, so that no loop below has a border case.
// For each pixel of a chunk: atoms D = alpha * psi, then z = D * window; for the whole chunk: y = z * A. Nothing larger than
// a chunk ever exists. In the backward pass the same walk recomputes D and z.

template <class T>
struct Kernel {
  typedef T Vec __attribute__((vector_size(ACDA_VECTOR), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = ACDA_VECTOR / sizeof(T);
  typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Lane;
  typedef Lane Lanes __attribute__((vector_size(ACDA_VECTOR)));
  static constexpr int kTall = 6;                 // rows and
  static constexpr int64_t kPanel = 2 * kLanes;   // columns of a register tile: 12 of 16 registers
  static constexpr int64_t kPixelBlock = 16;  // pixels that share the cached input while the channels go by

  static int64_t up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

  // ---------------------------------------------------------------- register tiles

  // acc[r][n] += sum over k of a[r, k] * b[k, n]; a by its two strides, b a row of vectors every b_step.
  template <int R, int N>
  ACDA_TARGET static inline __attribute__((always_inline)) void multiply(
      Vec (&acc)[R][N], int64_t K, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t b_step) {
    for (int64_t k = 0; k < K; ++k, a += a_step, b += b_step) {
      Vec bv[N];
      for (int n = 0; n < N; ++n) bv[n] = *(const Vec*)(b + n * kLanes);
      for (int r = 0; r < R; ++r) {
        const T s = a[r * a_row];
        for (int n = 0; n < N; ++n) acc[r][n] += s * bv[n];
      }
    }
  }

  // out = (add ? out : 0) + bias + a b, for one tile; `width` numbers of each row exist in out.
  template <int R, int N>
  ACDA_TARGET static void product_tile(
      int64_t K, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t b_step, const T* bias, bool add, T* out,
      int64_t out_row, int64_t width) {
    Vec acc[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) acc[r][n] = bias ? *(const Vec*)(bias + n * kLanes) : Vec{};
    multiply<R, N>(acc, K, a, a_row, a_step, b, b_step);
    for (int r = 0; r < R; ++r) {
      T* to = out + r * out_row;
      if (width == N * kLanes) {
        for (int n = 0; n < N; ++n) {
          Vec* v = (Vec*)(to + n * kLanes);
          *v = add ? *v + acc[r][n] : acc[r][n];
        }
      } else {
        T row[N * kLanes];
        for (int n = 0; n < N; ++n) *(Vec*)(row + n * kLanes) = acc[r][n];
        for (int64_t i = 0; i < width; ++i) to[i] = add ? to[i] + row[i] : row[i];
      }
    }
  }

  // The same for any number of rows and up to one panel of columns.
  template <int N>
  ACDA_TARGET static void product_rows(
      int64_t rows, int64_t K, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t b_step, const T* bias, bool add,
      T* out, int64_t out_row, int64_t width) {
    int64_t r = 0;
    for (; r + kTall <= rows; r += kTall)
      product_tile<kTall, N>(K, a + r * a_row, a_row, a_step, b, b_step, bias, add, out + r * out_row, out_row, width);
    const T* rest = a + r * a_row;
    T* to = out + r * out_row;
    switch (rows - r) {
      case 1: product_tile<1, N>(K, rest, a_row, a_step, b, b_step, bias, add, to, out_row, width); break;
      case 2: product_tile<2, N>(K, rest, a_row, a_step, b, b_step, bias, add, to, out_row, width); break;
      case 3: product_tile<3, N>(K, rest, a_row, a_step, b, b_step, bias, add, to, out_row, width); break;
      case 4: product_tile<4, N>(K, rest, a_row, a_step, b, b_step, bias, add, to, out_row, width); break;
      case 5: product_tile<5, N>(K, rest, a_row, a_step, b, b_step, bias, add, to, out_row, width); break;
    }
  }

  // `width` at most kPanel; b holds whole vectors.
  ACDA_TARGET static void product(
      int64_t rows, int64_t K, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t b_step, const T* bias, bool add,
      T* out, int64_t out_row, int64_t width) {
    if (width <= kLanes) product_rows<1>(rows, K, a, a_row, a_step, b, b_step, bias, add, out, out_row, width);
    else product_rows<2>(rows, K, a, a_row, a_step, b, b_step, bias, add, out, out_row, width);
  }

  // Whether all of them are finite: zero times anything else is NaN.
  ACDA_TARGET static bool all_finite(const T* values, int64_t count) {
    Vec sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes)
      for (int n = 0; n < 4; ++n) sums[n] += T(0) * *(const Vec*)(values + i + n * kLanes);
    T rest = 0;
    for (; i < count; ++i) rest += T(0) * values[i];
    const Vec sum = sums[0] + sums[1] + sums[2] + sums[3];
    for (int64_t lane = 0; lane < kLanes; ++lane) rest += sum[lane];
    return rest == 0;
  }

  // ---------------------------------------------------------------- one pixel, a block of channels

  // z[m] = sum over the window of D[m, tap] * x[tap], for R atoms and N vectors of channels.
  template <int R, int N>
  ACDA_TARGET static void gather(
      const Shape& s, const T* const* rows, int64_t column, int64_t dilation, const T* D, int64_t D_row, T* z, int64_t z_row) {
    Vec acc[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) acc[r][n] = Vec{};
    for (int64_t i = 0; i < s.k; ++i) {
      const Span& span = s.spans[i];
      multiply<R, N>(acc, span.count, D + span.before, D_row, 1, rows[i] + column + span.first * dilation, dilation);
    }
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) *(Vec*)(z + r * z_row + n * kLanes) = acc[r][n];
  }

  // dx[tap] += sum over R atoms of D[m, tap] * dz[m], for N vectors of channels.
  template <int R, int N>
  ACDA_TARGET static void scatter(
      const Shape& s, T* const* rows, int64_t column, int64_t dilation, const T* D, int64_t D_row, const T* dz, int64_t z_row) {
    Vec held[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) held[r][n] = *(const Vec*)(dz + r * z_row + n * kLanes);
    for (int64_t i = 0; i < s.k; ++i) {
      const Span& span = s.spans[i];
      T* to = rows[i] + column + span.first * dilation;
      const T* d = D + span.before;
      for (int64_t j = 0; j < span.count; ++j, to += dilation, ++d) {
        Vec sum[N];
        for (int n = 0; n < N; ++n) sum[n] = *(const Vec*)(to + n * kLanes);
        for (int r = 0; r < R; ++r) {
          const T w = d[r * D_row];
          for (int n = 0; n < N; ++n) sum[n] += w * held[r][n];
        }
        for (int n = 0; n < N; ++n) *(Vec*)(to + n * kLanes) = sum[n];
      }
    }
  }

  // dD[tap, m] = sum over the channels of dz[m] * x[tap], for R atoms and two taps. Whole vectors are written.
  template <int R>
  ACDA_TARGET static void correlate(
      const Shape& s, const T* first, const T* second, const T* dz, T* to_first, T* to_second) {
    Vec acc[2][R];
    for (int r = 0; r < R; ++r) acc[0][r] = acc[1][r] = Vec{};
    for (int64_t g = 0; g < s.groups; ++g, first += s.group_channels, second += s.group_channels, dz += s.group_z)
      for (int64_t c = 0; c < s.group_channels; c += kLanes) {
        const Vec u = *(const Vec*)(first + c), v = *(const Vec*)(second + c);
        for (int r = 0; r < R; ++r) {
          const Vec w = *(const Vec*)(dz + r * s.group_channels + c);
          acc[0][r] += w * u;
          acc[1][r] += w * v;
        }
      }
    store_totals<R>(acc[0], to_first);
    store_totals<R>(acc[1], to_second);
  }

  template <int R, int First = 0>
  ACDA_TARGET static inline __attribute__((always_inline)) void store_totals(const Vec (&v)[R], T* to) {
    *(Vec*)(to + First) = totals<R, First, 1>(v);
    if constexpr (First + kLanes < R) store_totals<R, First + kLanes>(v, to);
  }

  // Lane i is the sum over v[First + i] (zero from R on): each step folds two vectors into one.
  template <int R, int First, int64_t Step>
  ACDA_TARGET static inline __attribute__((always_inline)) Vec totals(const Vec (&v)[R]) {
    if constexpr (First >= R) return Vec{};
    else if constexpr (Step == kLanes) return v[First];
    else return fold<Step>(totals<R, First, 2 * Step>(v), totals<R, First + Step, 2 * Step>(v));
  }

  // In every 2D lanes: the halves of a added to each other, then those of b.
  template <int64_t D>
  ACDA_TARGET static inline __attribute__((always_inline)) Vec fold(Vec a, Vec b) {
    Lanes low{}, high{};
    for (int64_t i = 0; i < kLanes; ++i) {
      const bool from_a = i / D % 2 == 0;
      low[i] = from_a ? i : kLanes + i - D;
      high[i] = from_a ? i + D : kLanes + i;
    }
    return shuffled(a, b, low) + shuffled(a, b, high);
  }

#if defined(__clang__)
  ACDA_TARGET static inline __attribute__((always_inline)) Vec shuffled(Vec a, Vec b, Lanes from) {
    Vec y;
    for (int64_t i = 0; i < kLanes; ++i) y[i] = from[i] < kLanes ? a[from[i]] : b[from[i] - kLanes];
    return y;
  }
#else
  ACDA_TARGET static inline __attribute__((always_inline)) Vec shuffled(Vec a, Vec b, Lanes from) {
    return __builtin_shuffle(a, b, from);
  }
#endif

  // The tile functions by their number of atoms (and vectors): how the loops below pick one at run time.
  typedef void (*Gather)(const Shape&, const T* const*, int64_t, int64_t, const T*, int64_t, T*, int64_t);
  typedef void (*Scatter)(const Shape&, T* const*, int64_t, int64_t, const T*, int64_t, const T*, int64_t);
  typedef void (*Correlate)(const Shape&, const T*, const T*, const T*, T*, T*);
  static constexpr Gather kGather[2][6] = {
      {gather<1, 1>, gather<2, 1>, gather<3, 1>, gather<4, 1>, gather<5, 1>, gather<6, 1>},
      {gather<1, 2>, gather<2, 2>, gather<3, 2>, gather<4, 2>, gather<5, 2>, gather<6, 2>}};
  static constexpr Scatter kScatter[2][6] = {
      {scatter<1, 1>, scatter<2, 1>, scatter<3, 1>, scatter<4, 1>, scatter<5, 1>, scatter<6, 1>},
      {scatter<1, 2>, scatter<2, 2>, scatter<3, 2>, scatter<4, 2>, scatter<5, 2>, scatter<6, 2>}};
  static constexpr Correlate kCorrelate[6] = {correlate<1>, correlate<2>, correlate<3>,
                                              correlate<4>, correlate<5>, correlate<6>};

  // ---------------------------------------------------------------- what all threads share

  // Sizes with the channels of each group, the taps and the basis elements filled up to whole vectors.
  static void fill_up(Shape& s, const T* bases, bool for_backward) {
    find_live_taps(s, bases);
    // Pixels whose z exists at a time: even parts of a row, or several rows. The forward product runs along z and wants it
    // in the second cache; the gradient of the mixing runs along the pixels and wants many of them.
    const int64_t most = for_backward ? 120 : 60, parts = (s.Q + most - 1) / most;
    s.segment = std::min(s.Q, ((s.Q + parts - 1) / parts + kTall - 1) / kTall * kTall);
    s.chunk = s.segment * std::max<int64_t>(1, most / s.segment);
    s.taps = s.live.size();
    merge_groups(s);
    s.group_channels = up(s.C / s.groups);
    s.channels = s.groups * s.group_channels;
    s.group_z = s.M * s.group_channels;
    s.z_size = s.groups * s.group_z;
    s.D_row = s.has_bases ? up(s.taps) : s.taps;
    s.D_size = s.M * s.D_row;
    s.columns = s.W + 2 * s.px;
    s.ring_rows = (s.chunk / s.Q + 1) * s.sy + s.dy * (s.k - 1) + 1;
  }

  // Narrow groups, as in depthwise layers, would be mostly filling: several become one, whose mixing is zero between
  // them, as many as makes the arithmetic of a pixel least. Zero times NaN or infinity is NaN, so what comes out of such a
  // product and is not finite is computed again from its own group (`outputs_of_own_group` and the like below).
  static void merge_groups(Shape& s) {
    const auto work = [&](int64_t merged) {
      const int64_t groups = s.groups / merged;
      return groups * up(s.C / groups) * (s.taps + up(s.O / groups));
    };
    s.merged = 1;
    for (int64_t merged = 2; merged <= s.groups; ++merged)
      if (s.groups % merged == 0 && work(merged) < work(s.merged)) s.merged = merged;
    s.groups /= s.merged;
  }

  // In its group, the first channel that output o of all outputs sees; there are seen_channels of them.
  static int64_t first_seen(const Shape& s, int64_t o) {
    return o / (s.O / (s.groups * s.merged)) % s.merged * seen_channels(s);
  }
  static int64_t seen_channels(const Shape& s) { return s.C / (s.groups * s.merged); }

  // Taps at which every basis element is zero are left out of the arithmetic: Fourier-Bessel elements live on a disk, and
  // the corners of a 7×7 window, 12 of 49 taps, lie outside.
  static void find_live_taps(Shape& s, const T* bases) {
    for (int64_t i = 0; i < s.k; ++i) {
      int64_t first = s.has_bases ? s.k : 0, end = s.has_bases ? 0 : s.k;
      for (int64_t l = 0; s.has_bases && l < s.L; ++l)
        for (int64_t j = 0; j < s.k; ++j)
          if (bases[(l * s.k + i) * s.k + j] != 0) first = std::min(first, j), end = std::max(end, j + 1);
      s.spans.push_back({first, std::max<int64_t>(0, end - first), int64_t(s.live.size())});
      for (int64_t j = first; j < end; ++j) s.live.push_back({i, j});
    }
  }

  // The parameters in the order in which the tiles read them.
  struct Packed {
    Scratch<T> psi, psi_t, forward, backward, bias;
    int64_t group_outputs, output_panels, z_panels;

    Packed(const Shape& s, const T* bases, const T* mixing, const T* bias_in, bool for_backward) {
      if (s.has_bases) {
        psi.resize(s.L * up(s.taps), true);
        psi_t.resize(s.taps * up(s.L), true);
        for (int64_t l = 0; l < s.L; ++l)
          for (int64_t t = 0; t < s.taps; ++t)
            psi[l * up(s.taps) + t] = psi_t[t * up(s.L) + l] = bases[(l * s.k + s.live[t].row) * s.k + s.live[t].column];
      }
      if (!mixing) return;
      group_outputs = s.O / s.groups;
      output_panels = (group_outputs + kPanel - 1) / kPanel;
      z_panels = (s.group_z + kPanel - 1) / kPanel;
      const int64_t C = seen_channels(s);
      if (!for_backward) {
        bias.resize(s.groups * output_panels * kPanel, true);
        forward.resize(s.groups * output_panels * s.group_z * kPanel, true);
      } else {
        backward.resize(s.groups * z_panels * group_outputs * kPanel, true);
      }
      for (int64_t g = 0; g < s.groups; ++g)
        for (int64_t o = 0; o < group_outputs; ++o) {
          const T* from = mixing + (g * group_outputs + o) * C * s.M;
          const int64_t first = first_seen(s, g * group_outputs + o);
          if (!for_backward && bias_in) bias[g * output_panels * kPanel + o] = bias_in[g * group_outputs + o];
          for (int64_t c = 0; c < C; ++c)
            for (int64_t m = 0; m < s.M; ++m) {
              const int64_t z = m * s.group_channels + first + c;
              if (for_backward) z_panel(s, g, z / kPanel)[o * kPanel + z % kPanel] = from[c * s.M + m];
              else output_panel(s, g, o / kPanel)[z * kPanel + o % kPanel] = from[c * s.M + m];
            }
        }
    }
    T* output_panel(const Shape& s, int64_t g, int64_t n) {
      return forward.data() + (g * output_panels + n) * s.group_z * kPanel;
    }
    T* z_panel(const Shape&, int64_t g, int64_t n) { return backward.data() + (g * z_panels + n) * group_outputs * kPanel; }
  };

  // Consecutive output pixels of one row.
  struct Segment {
    int64_t p, q, count;
  };

  // An input row whose gradient two threads share: added up after they are done, in the order of the threads.
  struct SharedRow {
    int64_t image, row;
    std::vector<T> values;
  };

  // ---------------------------------------------------------------- a thread's walk over its rows

  struct Walk {
    const Shape& s;
    Packed& packed;
    const T *x, *alpha, *grad;
    T *y, *dx, *dalpha;
    uint8_t* written = nullptr;  // for each input row, whether its gradient is in dx already
    Scratch<T> ring, z, D, planes, dx_ring, dz, dD, panel, dA, sum;
    Scratch<double> dbias;
    std::vector<SharedRow> shared;
    std::vector<Segment> segments;
    std::vector<const T*> rows;
    std::vector<T*> dx_rows;
    int64_t image = -1, loaded = 0, emitted = 0, count = 0, first_p = 0, last_p = 0;

    Walk(const Shape& s, Packed& packed, const T* x, const T* alpha, const T* grad, T* y, T* dx, T* dalpha)
        : s(s), packed(packed), x(x), alpha(alpha), grad(grad), y(y), dx(dx), dalpha(dalpha), rows(s.k), dx_rows(s.k) {
      ring.resize(s.ring_rows * s.columns * s.channels, false);
      z.resize(s.chunk * s.z_size, false);
      if (s.has_bases) D.resize(s.chunk * s.D_size, false);
      if (s.planar) planes.resize(s.chunk * s.O, false);
      if (!grad) return;
      dx_ring.resize(s.ring_rows * s.columns * s.channels, false);
      dz.resize(s.chunk * s.z_size, false);
      dD.resize(s.taps * (s.M + kLanes + kTall), false);
      if (!s.has_mixing) return;
      panel.resize(s.chunk * kPanel, false);
      dA.resize(s.O * s.group_z, true);
      sum.resize(s.O, false);
      dbias.resize(s.O, true);
    }

    // Output rows begin to end, counted over all images.
    ACDA_TARGET void run(int64_t begin, int64_t end) {
      image = -1;
      for (int64_t row = begin; row < end; ++row) {
        if (row / s.P != image) enter(row / s.P, row % s.P, std::min(end - row, s.P - row % s.P));
        const int64_t p = row % s.P;
        for (int64_t q = 0; q < s.Q; q += s.segment) {
          const int64_t n = std::min(s.segment, s.Q - q);
          if (count + n > s.chunk) finish(p);
          load(p);
          atoms_and_z(p, q, n);
          segments.push_back({p, q, n});
          count += n;
        }
        if (p + 1 == s.P || row + 1 == end) finish(p + 1), emit(loaded);
      }
    }

    ACDA_TARGET void enter(int64_t b, int64_t p, int64_t how_many) {
      image = b, first_p = p, last_p = p + how_many;
      loaded = emitted = p * s.sy - s.py;
    }

    int64_t slot(int64_t h) const { return (h + s.py) % s.ring_rows * s.columns * s.channels; }

    // Bring the input rows under output row p into the ring.
    ACDA_TARGET void load(int64_t p) {
      const int64_t top = p * s.sy - s.py;
      loaded = std::max(loaded, top);
      for (; loaded <= top + s.dy * (s.k - 1); ++loaded) {
        T* to = ring.data() + slot(loaded);
        if (grad) std::fill_n(dx_ring.data() + slot(loaded), s.columns * s.channels, T(0));
        if (loaded < 0 || loaded >= s.H) {
          std::fill_n(to, s.columns * s.channels, T(0));
          continue;
        }
        std::fill_n(to, s.px * s.channels, T(0));
        std::fill_n(to + (s.px + s.W) * s.channels, s.px * s.channels, T(0));
        to += s.px * s.channels;
        const int64_t C = s.C / s.groups;
        if (s.planar) {
          for (int64_t c = 0; c < s.channels; ++c) {
            const int64_t g = c / s.group_channels, inner = c % s.group_channels;
            const T* from = x + ((image * s.C + g * C + inner) * s.H + loaded) * s.W;
            for (int64_t w = 0; w < s.W; ++w) to[w * s.channels + c] = inner < C ? from[w] : T(0);
          }
          continue;
        }
        const T* from = x + (image * s.H + loaded) * s.W * s.C;
        if (C == s.group_channels) {
          std::copy_n(from, s.W * s.C, to);
          continue;
        }
        for (int64_t i = 0; i < s.W * s.groups; ++i, from += C, to += s.group_channels) {
          std::copy_n(from, C, to);
          std::fill_n(to + C, s.group_channels - C, T(0));
        }
      }
      for (int64_t i = 0; i < s.k; ++i) rows[i] = ring.data() + slot(top + i * s.dy);
    }

    int64_t pixel(int64_t p, int64_t q) const { return (image * s.P + p) * s.Q + q; }

    // Where the atoms of a pixel of the chunk are: composed, or Φ's own prediction.
    const T* atoms_of(int64_t index, int64_t linear) const {
      return s.has_bases ? D.data() + index * s.D_size : alpha + linear * s.D_size;
    }

    ACDA_TARGET void atoms_and_z(int64_t p, int64_t q, int64_t n) {
      if (s.has_bases) compose(pixel(p, q), n, D.data() + count * s.D_size);
      const int64_t step = s.sx * s.channels, dilation = s.dx * s.channels;
      for (int64_t block = 0; block < n; block += kPixelBlock)
        for (int64_t g = 0; g < s.groups; ++g)
          for (int64_t c = 0; c < s.group_channels; c += kPanel) {
            const int wide = s.group_channels - c >= kPanel;
            for (int64_t i = block; i < std::min(block + kPixelBlock, n); ++i) {
              const T* atoms = atoms_of(count + i, pixel(p, q + i));
              T* to = z.data() + (count + i) * s.z_size + g * s.group_z + c;
              for (int64_t m = 0; m < s.M; m += kTall)
                kGather[wide][std::min<int64_t>(kTall, s.M - m) - 1](
                    s, rows.data(), (q + i) * step + g * s.group_channels + c, dilation, atoms + m * s.D_row, s.D_row,
                    to + m * s.group_channels, s.group_channels);
            }
          }
    }

    // D = alpha psi for n pixels, a panel of taps at a time: all their atoms are rows of one product.
    ACDA_TARGET void compose(int64_t linear, int64_t n, T* to) {
      for (int64_t t = 0; t < s.D_row; t += kPanel)
        product(n * s.M, s.L, alpha + linear * s.M * s.L, s.L, 1, packed.psi.data() + t, s.D_row, nullptr, false, to + t,
                s.D_row, std::min(kPanel, s.D_row - t));
    }

    // The chunk is complete, and output row `next_p` comes after it.
    ACDA_TARGET void finish(int64_t next_p) {
      if (count) grad ? backward() : forward();
      count = 0;
      segments.clear();
      emit(std::min(loaded, next_p * s.sy - s.py));
    }

    ACDA_TARGET void forward() {
      const int64_t linear = pixel(segments[0].p, segments[0].q);
      if (!s.has_mixing) return z_to_channels(linear);
      T* to = s.planar ? planes.data() : y + linear * s.O;
      for (int64_t g = 0; g < s.groups; ++g)
        for (int64_t n = 0; n < packed.output_panels; ++n) {
          const int64_t o = n * kPanel, width = std::min(kPanel, packed.group_outputs - o);
          product(count, s.group_z, z.data() + g * s.group_z, s.z_size, 1, packed.output_panel(s, g, n), kPanel,
                  packed.bias.data() + (g * packed.output_panels + n) * kPanel, false, to + g * packed.group_outputs + o, s.O,
                  width);
        }
      if (s.merged > 1 && !all_finite(to, count * s.O)) outputs_of_own_group(to);
      if (!s.planar) return;
      const int64_t pixels = s.P * s.Q;
      for (int64_t o = 0; o < s.O; ++o) {
        T* plane = y + (image * s.O + o) * pixels + linear - image * pixels;
        for (int64_t i = 0; i < count; ++i) plane[i] = planes[i * s.O + o];
      }
    }

    // The outputs that are not finite once more, without the other groups that they were computed with.
    ACDA_TARGET void outputs_of_own_group(T* to) {
      const int64_t C = seen_channels(s);
      for (int64_t o = 0; o < s.O; ++o) {
        const int64_t group = o / packed.group_outputs, inner = o % packed.group_outputs, first = first_seen(s, o);
        const T* mixing = packed.output_panel(s, group, inner / kPanel) + inner % kPanel;
        const T bias = packed.bias[group * packed.output_panels * kPanel + inner];
        for (int64_t i = 0; i < count; ++i) {
          if (std::isfinite(to[i * s.O + o])) continue;
          const T* from = z.data() + i * s.z_size + group * s.group_z;
          T sum = bias;
          for (int64_t m = 0; m < s.M; ++m)
            for (int64_t c = m * s.group_channels + first, end = c + C; c < end; ++c) sum += from[c] * mixing[c * kPanel];
          to[i * s.O + o] = sum;
        }
      }
    }

    // per_pixel_conv2d: z itself, channel c * M + m.
    ACDA_TARGET void z_to_channels(int64_t linear) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t m = 0; m < s.M; ++m)
          for (int64_t c = 0; c < s.C; ++c)
            y[((linear + i) * s.C + c) * s.M + m] = z[i * s.z_size + m * s.group_channels + c];
    }

    ACDA_TARGET void backward() {
      const T* g = grad + pixel(segments[0].p, segments[0].q) * s.O;
      if (s.has_mixing) gradient_of_mixing(g);
      gradient_of_z(g);
      int64_t index = 0;
      for (const Segment& segment : segments) {
        const int64_t top = segment.p * s.sy - s.py;
        for (int64_t i = 0; i < s.k; ++i) {
          rows[i] = ring.data() + slot(top + i * s.dy);
          dx_rows[i] = dx_ring.data() + slot(top + i * s.dy);
        }
        for (int64_t i = 0; i < segment.count; ++i)
          gradient_of_coefficients(pixel(segment.p, segment.q + i), segment.q + i, dz.data() + (index + i) * s.z_size);
        gradient_of_input(segment, index);
        index += segment.count;
      }
    }

    ACDA_TARGET void gradient_of_mixing(const T* g) {
      // The chunk's own sum first: one that runs over a million pixels loses its digits.
      std::fill_n(sum.data(), s.O, T(0));
      for (int64_t i = 0; i < count; ++i)
        for (int64_t o = 0; o < s.O; ++o) sum[o] += g[i * s.O + o];
      for (int64_t o = 0; o < s.O; ++o) dbias[o] += sum[o];
      for (int64_t group = 0; group < s.groups; ++group)
        for (int64_t c = 0; c < s.group_z; c += kPanel) {
          const int64_t width = std::min(kPanel, s.group_z - c);
          // z's rows lie a power of two apart at common widths, and would evict each other: take the panel out first.
          for (int64_t i = 0; i < count; ++i)
            std::copy_n(z.data() + i * s.z_size + group * s.group_z + c, width, panel.data() + i * kPanel);
          const int64_t o = group * packed.group_outputs;
          product(packed.group_outputs, count, g + o, 1, s.O, panel.data(), kPanel, nullptr, true,
                  dA.data() + o * s.group_z + c, s.group_z, width);
        }
    }

    ACDA_TARGET void gradient_of_z(const T* g) {
      if (!s.has_mixing) {
        for (int64_t i = 0; i < count; ++i)
          for (int64_t m = 0; m < s.M; ++m) {
            T* to = dz.data() + i * s.z_size + m * s.group_channels;
            for (int64_t c = 0; c < s.C; ++c) to[c] = g[(i * s.C + c) * s.M + m];
            std::fill(to + s.C, to + s.group_channels, T(0));
          }
        return;
      }
      for (int64_t group = 0; group < s.groups; ++group)
        for (int64_t n = 0; n < packed.z_panels; ++n)
          product(count, packed.group_outputs, g + group * packed.group_outputs, s.O, 1, packed.z_panel(s, group, n), kPanel,
                  nullptr, false, dz.data() + group * s.group_z + n * kPanel, s.z_size,
                  std::min(kPanel, s.group_z - n * kPanel));
      if (s.merged > 1 && !all_finite(g, count * s.O)) gradient_of_own_z(g);
    }

    // The gradients of z that are not finite once more, without the other groups that they were computed with.
    ACDA_TARGET void gradient_of_own_z(const T* g) {
      const int64_t C = seen_channels(s), outputs = packed.group_outputs / s.merged;
      for (int64_t own = 0; own < s.groups * s.merged; ++own) {
        const int64_t group = own / s.merged, first = own % s.merged * outputs, channel = own % s.merged * C;
        for (int64_t i = 0; i < count; ++i)
          for (int64_t m = 0; m < s.M; ++m)
            for (int64_t c = m * s.group_channels + channel, end = c + C; c < end; ++c) {
              T& to = dz[i * s.z_size + group * s.group_z + c];
              if (std::isfinite(to)) continue;
              const T* mixing = packed.z_panel(s, group, c / kPanel) + c % kPanel;
              to = 0;
              for (int64_t o = first; o < first + outputs; ++o)
                to += g[i * s.O + group * packed.group_outputs + o] * mixing[o * kPanel];
            }
      }
    }

    // dalpha = dD psi', where dD[tap, m] is the inner product of dz[m] and what the tap saw.
    ACDA_TARGET void gradient_of_coefficients(int64_t linear, int64_t q, const T* from) {
      const int64_t column = q * s.sx * s.channels, dilation = s.dx * s.channels, row = s.M + kLanes + kTall;
      for (int64_t m = 0; m < s.M; m += kTall) {
        const Correlate pair = kCorrelate[std::min<int64_t>(kTall, s.M - m) - 1];
        for (int64_t t = 0; t < s.taps; t += 2) {
          const int64_t u = std::min(t + 1, s.taps - 1);  // the last tap of an odd number is done twice
          pair(s, rows[s.live[t].row] + column + s.live[t].column * dilation,
               rows[s.live[u].row] + column + s.live[u].column * dilation, from + m * s.group_channels,
               dD.data() + t * row + m, dD.data() + u * row + m);
        }
      }
      if (!s.has_bases) {
        T* to = dalpha + linear * s.M * s.taps;
        for (int64_t m = 0; m < s.M; ++m)
          for (int64_t t = 0; t < s.taps; ++t) *to++ = dD[t * row + m];
        return;
      }
      for (int64_t l = 0; l < s.L; l += kPanel)
        product(s.M, s.taps, dD.data(), 1, row, packed.psi_t.data() + l, up(s.L), nullptr, false,
                dalpha + linear * s.M * s.L + l, s.L, std::min(kPanel, s.L - l));
    }

    ACDA_TARGET void gradient_of_input(const Segment& segment, int64_t index) {
      const int64_t step = s.sx * s.channels, dilation = s.dx * s.channels;
      for (int64_t block = 0; block < segment.count; block += kPixelBlock)
        for (int64_t g = 0; g < s.groups; ++g)
          for (int64_t c = 0; c < s.group_channels; c += kPanel) {
            const int wide = s.group_channels - c >= kPanel;
            for (int64_t i = block; i < std::min(block + kPixelBlock, segment.count); ++i) {
              const T* atoms = atoms_of(index + i, pixel(segment.p, segment.q + i));
              const T* from = dz.data() + (index + i) * s.z_size + g * s.group_z + c;
              for (int64_t m = 0; m < s.M; m += kTall)
                kScatter[wide][std::min<int64_t>(kTall, s.M - m) - 1](
                    s, dx_rows.data(), (segment.q + i) * step + g * s.group_channels + c, dilation, atoms + m * s.D_row,
                    s.D_row, from + m * s.group_channels, s.group_channels);
            }
          }
    }

    // The gradients of the input rows before `end` are complete as far as this thread goes: hand them over.
    ACDA_TARGET void emit(int64_t end) {
      if (!grad) return;
      const int64_t before = first_p > 0 ? (first_p - 1) * s.sy - s.py + s.dy * (s.k - 1) : -s.py - 1;
      const int64_t after = last_p < s.P ? last_p * s.sy - s.py : s.H + s.py;
      for (; emitted < end; ++emitted) {
        if (emitted < 0 || emitted >= s.H) continue;
        if ((emitted + s.py) % s.sy > s.dy * (s.k - 1)) continue;  // between the windows of a wide stride: never loaded
        T* to = dx + (image * s.H + emitted) * s.W * s.C;
        if (emitted <= before || emitted >= after) {
          shared.push_back({image, emitted, std::vector<T>(s.W * s.C)});
          to = shared.back().values.data();
        } else {
          written[image * s.H + emitted] = 1;
        }
        const T* from = dx_ring.data() + slot(emitted) + s.px * s.channels;
        const int64_t C = s.C / s.groups;
        for (int64_t i = 0; i < s.W * s.groups; ++i, from += s.group_channels, to += C) std::copy_n(from, C, to);
      }
    }
  };
};
