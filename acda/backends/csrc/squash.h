// Tanh of a vector. Included after kernel.h, once per instruction set.

template <class T>
struct Squash {
  using Vec = typename Kernel<T>::Vec;
  static constexpr int64_t kLanes = Kernel<T>::kLanes;

  // x P(x²) / Q(x²), fitted to a relative error of 2e-8 up to where tanh is 1 in float; NaN stays NaN.
  ACDA_TARGET static inline __attribute__((always_inline)) Vec of(Vec x) {
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
      Vec y{};
      for (int64_t i = 0; i < kLanes; ++i) y[i] = std::tanh(x[i]);
      return y;
    }
  }
};
