#include "elements.h"

#include <algorithm>
#include <limits>

namespace fl {
namespace {

constexpr std::uint64_t kMostDimensions = 8;
constexpr std::uint64_t kFreely = 16 << 20;  // bytes a batch may claim whatever its payloads are

std::uint64_t word(const std::uint8_t* row, std::uint64_t i) { return load<std::uint64_t>(row + i * sizeof i); }

std::uint64_t times(std::uint64_t one, std::uint64_t other) {
    std::uint64_t product;
    return __builtin_mul_overflow(one, other, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

Failure misfit(const std::string& what, const Extent& extent) {
    return Failure("format", what + " does not fit a payload of " + std::to_string(extent.raw_size) + " bytes");
}

std::uint64_t stated_element(std::uint64_t item, const Extent& extent, const std::uint8_t* shape) {
    const auto dimensions = word(shape, 0);
    if (dimensions > kMostDimensions)
        throw Failure("format", std::to_string(dimensions) + " dimensions; at most " +
                                    std::to_string(kMostDimensions) + " are possible");
    if (dimensions == 0) throw Failure("shape", "has no dimensions, so it has no length");
    auto element = item;
    for (std::uint64_t d = 2; d <= dimensions; ++d) element = times(element, word(shape, d));
    if (element == 0) throw Failure("shape", "has the shape " + stated_shape(shape) + ", whose elements have no bytes");
    if (times(element, word(shape, 1)) != extent.raw_size || element > std::numeric_limits<std::int64_t>::max())
        throw misfit("shape " + stated_shape(shape), extent);
    return element;
}

}  // namespace

std::uint64_t element_bytes(const Elements& elements, const Extent& extent, const std::uint8_t* metadata) {
    std::uint64_t element = elements.bytes;
    if (elements.stated == Elements::Stated::shape) element = stated_element(element, extent, metadata);
    if (elements.stated == Elements::Stated::length && times(element, word(metadata, 0)) != extent.raw_size)
        throw misfit("a length of " + std::to_string(word(metadata, 0)), extent);
    if (extent.raw_size % element != 0)
        throw Failure("format", "the payload has " + std::to_string(extent.raw_size) + " bytes, no multiple of the " +
                                    std::to_string(element) + " of an element");
    const auto length = extent.raw_size / element;
    if (elements.length && !elements.truncate && length > elements.length)
        throw Failure("length", "has the length " + std::to_string(length) + ", and the batch is padded to " +
                                    std::to_string(elements.length));
    return element;
}

std::string stated_shape(const std::uint8_t* shape) {
    std::string sizes = std::to_string(word(shape, 1));
    for (std::uint64_t d = 2; d <= word(shape, 0); ++d) sizes += ", " + std::to_string(word(shape, d));
    return "(" + sizes + ")";
}

bool same_element(const std::uint8_t* one, const std::uint8_t* other) {
    const auto dimensions = word(one, 0);
    if (dimensions != word(other, 0)) return false;
    for (std::uint64_t d = 2; d <= dimensions; ++d)
        if (word(one, d) != word(other, d)) return false;
    return true;
}

bool borne_out(std::uint64_t rows, std::uint64_t bytes, std::uint64_t stored) {
    const auto claimed = times(rows, bytes);
    return claimed <= kFreely || claimed / kMostRatio <= stored;
}

void fill_items(MutableBytes out, std::span<const std::uint8_t> item) {
    if (out.empty()) return;
    if (std::all_of(item.begin(), item.end(), [&](std::uint8_t byte) { return byte == item[0]; })) {
        std::memset(out.data(), item[0], out.size());
        return;
    }
    std::memcpy(out.data(), item.data(), item.size());
    for (std::size_t done = item.size(); done < out.size(); done *= 2)
        std::memcpy(out.data() + done, out.data(), std::min(done, out.size() - done));
}

}  // namespace fl
