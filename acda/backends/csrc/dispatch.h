// The kernels of all instruction sets, and the one place that chooses among them and among the dtypes.

#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "geometry.h"
#include "scratch.h"
#include "threads.h"

namespace {

namespace baseline {
#define ACDA_TARGET
#define ACDA_VECTOR 16
#define ACDA_REGISTERS 16
#include "set.inc"
#undef ACDA_TARGET
#undef ACDA_VECTOR
#undef ACDA_REGISTERS
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
#define ACDA_TARGET __attribute__((target("avx2,fma")))
#define ACDA_VECTOR 32
#define ACDA_REGISTERS 16
#include "set.inc"
#undef ACDA_TARGET
#undef ACDA_VECTOR
#undef ACDA_REGISTERS
}  // namespace avx2

// ACDA_EMULATE_AVX512 compiles this set for a processor without it: the compiler makes two of each vector, slowly. So its
// vectors and tiles can be tested anywhere.
namespace avx512 {
#if defined(ACDA_EMULATE_AVX512)
#define ACDA_TARGET __attribute__((target("avx2,fma")))
#else
#define ACDA_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#endif
#define ACDA_VECTOR 64
#define ACDA_REGISTERS 32
#include "set.inc"
#undef ACDA_TARGET
#undef ACDA_VECTOR
#undef ACDA_REGISTERS
}  // namespace avx512
#endif

enum class Vectors : int64_t { kBaseline = 16, kAvx2 = 32, kAvx512 = 64 };

// ACDA_VECTORS=baseline or avx2 asks for less than the processor has, so that all of it can be tested on one.
inline Vectors supported() {
#if defined(__x86_64__)
  static const Vectors best = [] {
    const char* variable = std::getenv("ACDA_VECTORS");
    const std::string_view most = variable ? variable : "";
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#if defined(ACDA_EMULATE_AVX512)
    const bool has_avx512 = has_avx2;
#else
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512dq");
#endif
    if (most == "baseline") return Vectors::kBaseline;
    if (most != "avx2" && has_avx512) return Vectors::kAvx512;
    return has_avx2 ? Vectors::kAvx2 : Vectors::kBaseline;
  }();
  return best;
#else
  return Vectors::kBaseline;
#endif
}

// step.operator()<Set, T>() with the best instruction set that this processor has, and the dtype of `like`.
template <class Step>
void dispatch(const torch::stable::Tensor& like, const Step& step) {
  const auto with = [&]<class Set>() {
    if (like.scalar_type() == torch::headeronly::ScalarType::Double) step.template operator()<Set, double>();
    else step.template operator()<Set, float>();
  };
#if defined(__x86_64__)
  if (supported() == Vectors::kAvx512) return with.template operator()<avx512::Set>();
  if (supported() == Vectors::kAvx2) return with.template operator()<avx2::Set>();
#endif
  with.template operator()<baseline::Set>();
}

}  // namespace
