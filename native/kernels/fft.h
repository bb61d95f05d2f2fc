// The Fourier transform of real numbers, of any length, in double precision. Its additions and products have a fixed
// order and its angles come from portable_math, so that a spectrum has the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fl {

// Real and imaginary parts apart, so that the compiler can work on neighbours together.
struct Complexes {
    std::vector<double> re, im;
    explicit Complexes(std::size_t size = 0) : re(size), im(size) {}
};

// The transform of complex numbers, forward. Lengths of factors 2, 3 and 5 are done in passes, others by Bluestein's way.
class Fft {
public:
    explicit Fft(std::size_t size);
    std::size_t size() const { return size_; }
    // The result stands where the numbers stood; `room` is made as large as it needs to be.
    void run(Complexes& numbers, Complexes& room) const;

private:
    struct Pass {
        std::size_t radix, length, stride;
        std::size_t twiddles;  // where its own begin
    };
    struct Bluestein {
        std::unique_ptr<Fft> inner;
        Complexes chirp, filter;
    };
    void convolve(Complexes& numbers, Complexes& room) const;

    std::size_t size_;
    std::vector<Pass> passes_;
    Complexes twiddles_;
    std::unique_ptr<Bluestein> bluestein_;
};

class RealFft {
public:
    explicit RealFft(std::size_t size);
    std::size_t bins() const { return size_ / 2 + 1; }

    // What a thread needs while it runs; reused from call to call.
    struct Room {
        Complexes numbers, more;
    };
    // The squares of the magnitudes, `bins()` of them, of `size` numbers.
    void power(const double* numbers, double* out, Room& room) const;

private:
    std::size_t size_;
    Fft inner_;
    Complexes turns_;
};

}  // namespace fl
