// Memory that a call needs for itself, aligned to cache lines.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

// Tests fill scratch memory with NaN, to show that nothing is read before it is written.
inline std::atomic<bool> poison{false};

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
