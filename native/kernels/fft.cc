#include "fft.h"

#include "bytes.h"
#include "portable_math.h"

namespace fl {
namespace {

// e^(-2 pi i k / n) for any k.
void turn(std::uint64_t k, std::uint64_t n, double& re, double& im) {
    const double angle = 2.0 * static_cast<double>(k % n) / static_cast<double>(n);
    re = cos_pi(angle);
    im = -sin_pi(angle);
}

struct Pair {
    double re, im;
    Pair operator+(Pair o) const { return {re + o.re, im + o.im}; }
    Pair operator-(Pair o) const { return {re - o.re, im - o.im}; }
    Pair operator*(Pair o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
    Pair times(double f) const { return {re * f, im * f}; }
    Pair times_minus_i() const { return {im, -re}; }
};

template <std::size_t R>
void butterfly(Pair (&v)[R]) {
    if constexpr (R == 2) {
        const Pair a = v[0], b = v[1];
        v[0] = a + b;
        v[1] = a - b;
    } else if constexpr (R == 3) {
        constexpr double kSine = 0.86602540378443864676;
        const Pair sum = v[1] + v[2], turned = (v[1] - v[2]).times(kSine).times_minus_i();
        const Pair middle = v[0] - sum.times(0.5);
        v[0] = v[0] + sum;
        v[1] = middle + turned;
        v[2] = middle - turned;
    } else if constexpr (R == 4) {
        const Pair ac = v[0] + v[2], a_c = v[0] - v[2], bd = v[1] + v[3], b_d = (v[1] - v[3]).times_minus_i();
        v[0] = ac + bd;
        v[1] = a_c + b_d;
        v[2] = ac - bd;
        v[3] = a_c - b_d;
    } else {
        static_assert(R == 5);
        constexpr double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410;
        constexpr double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;
        const Pair p = v[1] + v[4], q = v[2] + v[3], m = v[1] - v[4], n = v[2] - v[3];
        const Pair one = v[0] + p.times(c1) + q.times(c2), two = v[0] + p.times(c2) + q.times(c1);
        const Pair i_one = (m.times(s1) + n.times(s2)).times_minus_i();
        const Pair i_two = (m.times(s2) - n.times(s1)).times_minus_i();
        v[0] = v[0] + p + q;
        v[1] = one + i_one;
        v[2] = two + i_two;
        v[3] = two - i_two;
        v[4] = one - i_one;
    }
}

// One of Stockham's passes: sorted by itself, from one array into another.
template <std::size_t R>
void pass(std::size_t length, std::size_t stride, const double* __restrict twiddle_re,
          const double* __restrict twiddle_im, const double* __restrict in_re, const double* __restrict in_im,
          double* __restrict out_re, double* __restrict out_im) {
    const std::size_t part = length / R;
    for (std::size_t p = 0; p < part; ++p) {
        Pair w[R];
        for (std::size_t r = 1; r < R; ++r) w[r] = {twiddle_re[p * (R - 1) + r - 1], twiddle_im[p * (R - 1) + r - 1]};
        for (std::size_t q = 0; q < stride; ++q) {
            Pair v[R];
            for (std::size_t r = 0; r < R; ++r) {
                const std::size_t at = q + stride * (p + r * part);
                v[r] = {in_re[at], in_im[at]};
            }
            butterfly<R>(v);
            const std::size_t to = q + stride * R * p;
            out_re[to] = v[0].re;
            out_im[to] = v[0].im;
            for (std::size_t r = 1; r < R; ++r) {
                const Pair turned = v[r] * w[r];
                out_re[to + stride * r] = turned.re;
                out_im[to + stride * r] = turned.im;
            }
        }
    }
}

}  // namespace

Fft::Fft(std::size_t size) : size_(size) {
    if (size == 0 || size > (std::size_t{1} << 24)) throw Failure("argument", "a transform of 1 to 2^24 numbers");
    std::size_t left = size;
    std::vector<std::size_t> factors;
    for (const std::size_t radix : {4, 2, 3, 5})
        while (left % radix == 0) {
            factors.push_back(radix);
            left /= radix;
        }
    if (left != 1) {
        std::size_t larger = 1;
        while (larger < 2 * size - 1) larger *= 2;
        bluestein_ = std::make_unique<Bluestein>();
        auto& b = *bluestein_;
        b.inner = std::make_unique<Fft>(larger);
        b.chirp = Complexes(size);
        b.filter = Complexes(larger);
        for (std::uint64_t k = 0; k < size; ++k) {
            turn(k * k % (2 * size), 2 * size, b.chirp.re[k], b.chirp.im[k]);
            b.filter.re[k] = b.filter.re[(larger - k) % larger] = b.chirp.re[k];
            b.filter.im[k] = b.filter.im[(larger - k) % larger] = -b.chirp.im[k];
        }
        Complexes room;
        b.inner->run(b.filter, room);
        return;
    }
    std::size_t length = size, stride = 1;
    for (const std::size_t radix : factors) {
        passes_.push_back({radix, length, stride, twiddles_.re.size()});
        for (std::size_t p = 0; p < length / radix; ++p)
            for (std::size_t r = 1; r < radix; ++r) {
                double re, im;
                turn(std::uint64_t{p} * r, length, re, im);
                twiddles_.re.push_back(re);
                twiddles_.im.push_back(im);
            }
        length /= radix;
        stride *= radix;
    }
}

void Fft::run(Complexes& numbers, Complexes& room) const {
    if (bluestein_) return convolve(numbers, room);
    room.re.resize(size_);
    room.im.resize(size_);
    for (const auto& one : passes_) {
        const auto go = [&](auto run) {
            run(one.length, one.stride, twiddles_.re.data() + one.twiddles, twiddles_.im.data() + one.twiddles,
                numbers.re.data(), numbers.im.data(), room.re.data(), room.im.data());
        };
        switch (one.radix) {
            case 2: go(pass<2>); break;
            case 3: go(pass<3>); break;
            case 4: go(pass<4>); break;
            default: go(pass<5>); break;
        }
        numbers.re.swap(room.re);
        numbers.im.swap(room.im);
    }
}

// A transform is a convolution with a chirp, and that is made of transforms of a convenient length.
void Fft::convolve(Complexes& numbers, Complexes& room) const {
    const auto& b = *bluestein_;
    const std::size_t larger = b.inner->size();
    Complexes work(larger);
    for (std::size_t k = 0; k < size_; ++k) {
        const Pair turned = Pair{numbers.re[k], numbers.im[k]} * Pair{b.chirp.re[k], b.chirp.im[k]};
        work.re[k] = turned.re;
        work.im[k] = turned.im;
    }
    b.inner->run(work, room);
    for (std::size_t k = 0; k < larger; ++k) {  // the conjugate, so that the second transform is the inverse one
        const Pair product = Pair{work.re[k], work.im[k]} * Pair{b.filter.re[k], b.filter.im[k]};
        work.re[k] = product.re;
        work.im[k] = -product.im;
    }
    b.inner->run(work, room);
    const double share = 1.0 / static_cast<double>(larger);
    for (std::size_t k = 0; k < size_; ++k) {
        const Pair back = Pair{work.re[k] * share, -work.im[k] * share} * Pair{b.chirp.re[k], b.chirp.im[k]};
        numbers.re[k] = back.re;
        numbers.im[k] = back.im;
    }
}

RealFft::RealFft(std::size_t size) : size_(size), inner_(size % 2 ? size : size / 2), turns_(size / 2 + 1) {
    for (std::size_t k = 0; k <= size / 2; ++k) turn(k, size, turns_.re[k], turns_.im[k]);
}

void RealFft::power(const double* numbers, double* out, Room& room) const {
    auto& z = room.numbers;
    const std::size_t half = inner_.size();
    z.re.resize(half);
    z.im.resize(half);
    if (size_ % 2) {
        for (std::size_t i = 0; i < size_; ++i) {
            z.re[i] = numbers[i];
            z.im[i] = 0;
        }
        inner_.run(z, room.more);
        for (std::size_t k = 0; k < bins(); ++k) out[k] = z.re[k] * z.re[k] + z.im[k] * z.im[k];
        return;
    }
    // Even numbers as real parts, odd ones as imaginary parts; the two spectra are told apart by their symmetry.
    for (std::size_t i = 0; i < half; ++i) {
        z.re[i] = numbers[2 * i];
        z.im[i] = numbers[2 * i + 1];
    }
    inner_.run(z, room.more);
    for (std::size_t k = 0; k <= half; ++k) {
        const std::size_t a = k == half ? 0 : k, b = k == 0 ? 0 : half - k;
        const Pair even{(z.re[a] + z.re[b]) * 0.5, (z.im[a] - z.im[b]) * 0.5};
        const Pair odd{(z.im[a] + z.im[b]) * 0.5, (z.re[b] - z.re[a]) * 0.5};
        const Pair both = even + odd * Pair{turns_.re[k], turns_.im[k]};
        out[k] = both.re * both.re + both.im * both.im;
    }
}

}  // namespace fl
