// exp, log, sin and cos whose bits depend on no libm and no CPU: additions, products and divisions alone, in a fixed
// order. Good to a few units in the last place, which is more than the 22 bits of a filter's weight need.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fl {

// sin(pi x) for |x| below 2^31.
inline double sin_pi(double x) {
    const auto nearest = static_cast<std::int64_t>(x + (x < 0 ? -0.5 : 0.5));
    const double t = (x - static_cast<double>(nearest)) * 3.14159265358979323846;
    const double s = t * t;
    double sum = 1.0 / 121645100408832000.0 - s * (1.0 / 51090942171709440000.0);
    sum = 1.0 / 355687428096000.0 - s * sum;
    sum = 1.0 / 1307674368000.0 - s * sum;
    sum = 1.0 / 6227020800.0 - s * sum;
    sum = 1.0 / 39916800 - s * sum;
    sum = 1.0 / 362880 - s * sum;
    sum = 1.0 / 5040 - s * sum;
    sum = 1.0 / 120 - s * sum;
    sum = 1.0 / 6 - s * sum;
    const double sine = t - t * s * sum;
    return nearest & 1 ? -sine : sine;
}

inline double cos_pi(double x) { return sin_pi(0.5 - std::abs(x)); }

// e^x for x from -700 to 700; 0 below.
inline double portable_exp(double x) {
    if (x < -700) return 0;
    const auto n = static_cast<std::int64_t>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    // ln 2 in two parts, the first with so few bits that its product with n is exact.
    const double r = (x - static_cast<double>(n) * 6.93147180369123816490e-01) -
                     static_cast<double>(n) * 1.90821492927058770002e-10;
    double sum = 1;
    for (int k = 14; k > 0; --k) sum = 1 + r / k * sum;
    return sum * std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// The natural logarithm of a normal positive number.
inline double portable_log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++exponent;
    }
    const double z = (m - 1) / (m + 1), s = z * z;  // log m = 2 atanh z, and |z| < 0.172
    double sum = 0;
    for (int k = 21; k > 1; k -= 2) sum = s * (1.0 / k + sum);
    return static_cast<double>(exponent) * 6.93147180369123816490e-01 +
           (2 * z * (1 + sum) + static_cast<double>(exponent) * 1.90821492927058770002e-10);
}

}  // namespace fl
