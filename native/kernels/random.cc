#include "random.h"

#include <algorithm>
#include <cmath>

#include "portable_math.h"

namespace fl {

PhiloxCounter philox(PhiloxKey key, PhiloxCounter c) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0], b = std::uint64_t{0xCD9E8D57u} * c[2];
        c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
             static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return c;
}

Random::Random(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::uint32_t op) {
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    const auto place =
        philox({low(seed), high(seed)}, {low(epoch), high(epoch), low(sample), high(sample)});
    key_ = {place[0], place[1]};
    next_ = {0, op, place[2], place[3]};
}

std::uint32_t Random::bits() {
    if (used_ == 4) {
        block_ = philox(key_, next_);
        ++next_[0];
        used_ = 0;
    }
    return block_[used_++];
}

std::uint64_t Random::bits64() {
    const std::uint64_t low = bits();
    return low | std::uint64_t{bits()} << 32;
}

double Random::uniform() { return static_cast<double>(bits64() >> 11) * 0x1p-53; }

// The upper half of a product with the bound, drawn again where the lower half lies among the few values that would make
// some results likelier than others.
std::uint64_t Random::below(std::uint64_t bound) {
    if (bound == 0) throw Failure("argument", "no number lies below 0");
    const std::uint64_t uneven = -bound % bound;
    for (;;) {
        const auto product = static_cast<unsigned __int128>(bits64()) * bound;
        if (static_cast<std::uint64_t>(product) >= uneven) return static_cast<std::uint64_t>(product >> 64);
    }
}

double Random::normal() {  // Box and Muller's; the sine that would make a second one is left
    const double radius = std::sqrt(-2 * portable_log(1 - uniform()));
    return radius * cos_pi(2 * uniform());
}

void Random::bytes(MutableBytes out) {
    for (std::size_t at = 0; at < out.size(); at += 4) {
        const auto word = bits();
        std::memcpy(out.data() + at, &word, std::min<std::size_t>(4, out.size() - at));
    }
}

}  // namespace fl
