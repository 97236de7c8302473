// The whole layer without gradients: Φ's two steps and the operator, a few output rows at a time. The hidden map and the
// coefficients of more rows never exist; those of a strip stay in the caches.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "dispatch.h"
#include "generator.h"

namespace {

// A step of Φ on one image; the normalisation is part of weight and shift.
template <class T>
struct Step {
  ConvGeometry s;
  const T *weight, *shift;
};

template <class Set, class T>
class Layer {
  using Direct = typename Set::template Conv<T>;
  using Fast = typename Set::template Winograd<T>;
  using Operator = typename Set::template Walk<T>;
  static constexpr int64_t kPixels = 400;  // of a strip; at least one row, of tiles where they are Winograd's

  const Geometry& s;
  const ConvGeometry squeeze, predict;
  const T* x;
  T* y;
  const typename Set::template Plan<T> plan;
  const typename Set::template Packed<T> packed;
  const typename Direct::Packed packed_squeeze;
  std::unique_ptr<typename Direct::Packed> packed_direct;  // this
  std::unique_ptr<typename Fast::Packed> packed_fast;      // or these two
  std::unique_ptr<typename Fast::Grid> grid;
  int64_t height, strips;  // output rows of a strip, strips of an image

 public:
  Layer(
      const Geometry& s, const Step<T>& first, const Step<T>& second, const T* x, const T* bases, const T* mixing,
      const T* bias, T* y)
      : s(s), squeeze(first.s), predict(second.s), x(x), y(y), plan(s, bases, false),
        packed(s, plan, bases, mixing, bias, false), packed_squeeze(squeeze, first.weight, first.shift) {
    // A small map has a strip for each thread.
    const int64_t shares = (torch::stable::get_num_threads() + s.B - 1) / s.B;
    height = std::min((kPixels + s.Q - 1) / s.Q, (s.P + shares - 1) / shares);
    // As convolve() would choose for the whole batch, so that the results are the same bit for bit.
    ConvGeometry all = predict;
    all.B = s.B;
    if (takes_winograd<Set, T>(all)) {
      packed_fast = std::make_unique<typename Fast::Packed>(predict, second.weight, second.shift);
      grid = std::make_unique<typename Fast::Grid>(Fast::Grid::for_forward(predict));
      height = (height + Fast::kStep - 1) / Fast::kStep * Fast::kStep;
    } else {
      packed_direct = std::make_unique<typename Direct::Packed>(predict, second.weight, second.shift);
    }
    height = std::min(height, s.P);
    strips = (s.P + height - 1) / height;
  }

  void run() const {
    walk_freely(
        s.B * strips, [&] { return Walk(*this); }, 1);
  }

 private:
  // A thread's walk over its strips.
  struct Walk {
    const Layer& of;
    const Geometry& s;
    const int64_t hidden_row, alpha_row;      // numbers in a row of the maps
    Scratch<T> pixels, hidden, alpha;         // rows of a planar input, pixel-major; of the hidden map; coefficients
    int64_t image = -1, first = 0, last = 0;  // the rows that `hidden` holds
    typename Direct::Walk squeeze;
    std::unique_ptr<typename Direct::Walk> direct;  // this or that
    std::unique_ptr<typename Fast::Walk> fast;
    Operator apply;

    explicit Walk(const Layer& of)
        : of(of), s(of.s), hidden_row(s.W * of.predict.C), alpha_row(s.Q * s.M * s.L),
          squeeze(of.squeeze, of.packed_squeeze, nullptr, nullptr, true),
          apply(s, of.plan, of.packed, of.x, nullptr, nullptr, of.y, nullptr, nullptr) {
      const int64_t rows = (rounded(of.height) - 1) * s.sy + of.predict.k;
      hidden.resize(rows * hidden_row, false);
      alpha.resize(of.height * alpha_row, false);
      if (s.planar) pixels.resize(rows * s.W * s.C, false);
      if (of.grid) fast = std::make_unique<typename Fast::Walk>(of.predict, *of.packed_fast, *of.grid, nullptr, nullptr, true);
      else direct = std::make_unique<typename Direct::Walk>(of.predict, *of.packed_direct, nullptr, nullptr, true);
    }

    // Output rows in whole tiles, where there are tiles.
    int64_t rounded(int64_t rows) const { return of.grid ? (rows + Fast::kStep - 1) / Fast::kStep * Fast::kStep : rows; }

    void run(int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int64_t b = strip / of.strips, p = strip % of.strips * of.height, count = std::min(of.height, s.P - p);
        const int64_t top = p * s.sy - of.predict.py, bottom = top + (rounded(count) - 1) * s.sy + of.predict.k;
        hold(b, std::clamp<int64_t>(top, 0, s.H), std::clamp<int64_t>(bottom, 0, s.H));
        coefficients(p, count);
        const int64_t row = b * s.P + p;
        apply.alpha = alpha.data() - row * alpha_row;
        apply.run(row, row + count);
      }
    }

    // Rows `top` to `bottom` of an image's hidden map; those that the last strip has are moved, not computed again.
    void hold(int64_t b, int64_t top, int64_t bottom) {
      if (b != image && direct) std::fill(direct->held.begin(), direct->held.end(), -1);
      const bool follows = b == image && first <= top && top < last;
      const int64_t begin = follows ? std::min(last, bottom) : top;
      if (follows) std::copy_n(hidden.data() + (top - first) * hidden_row, (begin - top) * hidden_row, hidden.data());
      image = b, first = top, last = bottom;
      if (begin >= bottom) return;
      squeeze.x = of.x + b * s.H * s.W * s.C;
      if (s.planar) {
        const T* from = squeeze.x;
        for (int64_t h = begin; h < bottom; ++h)
          Set::template Tiles<T>::transpose(from + h * s.W, s.H * s.W, s.C, s.W, pixels.data() + (h - begin) * s.W * s.C, s.C);
        squeeze.x = pixels.data() - begin * s.W * s.C;
      }
      squeeze.y = hidden.data() - top * hidden_row;
      squeeze.run(begin, bottom);
    }

    // Of `count` output rows from p on.
    void coefficients(int64_t p, int64_t count) {
      const T* from = hidden.data() - first * hidden_row;
      T* to = alpha.data() - p * alpha_row;
      if (direct) {
        direct->x = from, direct->y = to;
        direct->run(p, p + count);
      } else {
        fast->input.data = from, fast->y = to;
        const int64_t across = of.grid->across;
        fast->tiles(p / Fast::kStep * across, rounded(p + count) / Fast::kStep * across);
      }
    }
  };
};

}  // namespace
