// Tensors as pointers, and what the operators demand of them.

#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <optional>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

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

void check_floating(const Tensor& x) {
  STD_TORCH_CHECK(
      x.scalar_type() == ScalarType::Float || x.scalar_type() == ScalarType::Double, "acda: float32 or float64 only.");
}

void check(const Tensor& t, const Tensor& like, int64_t dimensions, const char* name) {
  STD_TORCH_CHECK(
      t.dim() == dimensions && t.is_contiguous() && t.is_cpu() && t.scalar_type() == like.scalar_type(), "acda: ", name,
      " needs to be a dense ", dimensions, "-dimensional CPU tensor of the input's dtype; call acda.functional instead.");
}

void check_channels(const Tensor& t, const Tensor& u, const char* name) {
  check(t, u, 1, name);
  STD_TORCH_CHECK(t.size(0) == u.size(3), "acda: ", name, " needs one number per channel.");
}

}  // namespace
