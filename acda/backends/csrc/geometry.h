// What the operators are given, in numbers. What a kernel derives from it for its instruction set is its plan (plan.inc).

#pragma once

#include <cstdint>

// adaptive_conv2d. Planar: x and y are (B, C, H, W) and (B, O, P, Q) instead of pixel-major.
struct Geometry {
  int64_t B, C, H, W, O, M, L, k, P, Q, sy, sx, py, px, dy, dx, groups;
  bool has_bases, has_mixing, planar;
};

// Φ's last map and its normalisation: the coefficients are tanh((u - mean) * scale + shift).
template <class T>
struct Unsquashed {
  const T *u, *mean, *scale, *shift;
};

// A convolution of the generator; negative padding crops the map.
struct ConvGeometry {
  int64_t B, H, W, C, O, k, P, Q, sy, sx, py, px;
};
