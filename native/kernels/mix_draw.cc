#include "mix_draw.h"

#include <algorithm>

#include "portable_math.h"

namespace fl {
namespace {

double log_uniform(Random& random) { return portable_log(1 - random.uniform()); }

// The logarithm of a gamma variate, by Marsaglia and Tsang. A shape below 1 is drawn one higher and brought down; its
// variates may be too small for a number, their logarithms are not.
double log_gamma_variate(Random& random, double shape) {
    const double raised = shape < 1 ? shape + 1 : shape;
    const double d = raised - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
        const double x = random.normal(), root = 1 + c * x;
        if (root <= 0) continue;
        const double v = root * root * root, log_v = 3 * portable_log(root);
        if (log_uniform(random) >= x * x / 2 + d - d * v + d * log_v) continue;
        const double log_value = portable_log(d) + log_v;
        return shape < 1 ? log_value + log_uniform(random) / shape : log_value;
    }
}

}  // namespace

void draw_mix(std::uint64_t seed, std::uint64_t epoch, std::span<const std::int64_t> samples, std::uint32_t op,
              double alpha, std::span<MixDraw> out) {
    if (!(alpha > 0 && alpha <= 1000)) throw Failure("argument", "alpha lies above 0 and not above 1000");
    if (out.size() != samples.size()) throw Failure("argument", "not as many draws as samples");
    for (std::size_t i = 0; i < samples.size(); ++i) {
        Random random(seed, epoch, static_cast<std::uint64_t>(samples[i]), op);
        auto& draw = out[i];
        const std::uint64_t low = random.bits();
        draw.rank = low | std::uint64_t{random.bits()} << 32;
        draw.chance = random.uniform();
        draw.x = random.uniform();
        draw.y = random.uniform();
        const double one = log_gamma_variate(random, alpha), other = log_gamma_variate(random, alpha);
        draw.share = 1 / (1 + portable_exp(std::clamp(other - one, -700.0, 700.0)));
    }
}

}  // namespace fl
