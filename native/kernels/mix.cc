#include "mix.h"

#include "half.h"

namespace fl {
namespace {

std::size_t check(Bytes batch, std::span<const std::int64_t> partners, std::size_t other, MutableBytes out) {
    const std::size_t count = partners.size();
    if (other != count) throw Failure("argument", "not as many partners as samples");
    if (batch.size() != out.size()) throw Failure("argument", "the output has another size than the batch");
    if (count == 0 ? !batch.empty() : batch.size() % count != 0)
        throw Failure("argument", "the batch is no whole number of samples");
    for (std::size_t i = 0; i < count; ++i)
        if (partners[i] < 0 || static_cast<std::size_t>(partners[i]) >= count) {
            Failure failure("argument", "partner " + std::to_string(partners[i]) + " is no sample of the batch");
            failure.position = static_cast<std::int64_t>(i);
            throw failure;
        }
    return count ? batch.size() / count : 0;
}

void mix_bytes(const std::uint8_t* one, const std::uint8_t* other, std::size_t size, float share, std::uint8_t* out) {
    const auto weight = static_cast<std::uint32_t>(share * 65536.0f + 0.5f), rest = 65536 - weight;
    for (std::size_t i = 0; i < size; ++i)
        out[i] = static_cast<std::uint8_t>((one[i] * weight + other[i] * rest + 32768) >> 16);
}

template <class Bits, auto kFrom, auto kTo>
void mix_floats(const std::uint8_t* one, const std::uint8_t* other, std::size_t size, float share, std::uint8_t* out) {
    const float rest = 1.0f - share;
    for (std::size_t at = 0; at < size; at += sizeof(Bits)) {
        const float a = kFrom(load<Bits>(one + at)) * share, b = kFrom(load<Bits>(other + at)) * rest;
        store(out + at, kTo(a + b));
    }
}

float same(float value) { return value; }

}  // namespace

void mixup(Element element, Bytes batch, std::span<const std::int64_t> partners, std::span<const float> shares,
           MutableBytes out) {
    const std::size_t size = check(batch, partners, shares.size(), out);
    if (size % size_of(element)) throw Failure("argument", "a sample is no whole number of elements");
    const auto mix = element == Element::uint8      ? mix_bytes
                     : element == Element::float16  ? mix_floats<std::uint16_t, from_half, to_half>
                     : element == Element::bfloat16 ? mix_floats<std::uint16_t, from_bfloat, to_bfloat>
                                                    : mix_floats<float, same, same>;
    for (std::size_t i = 0; i < partners.size(); ++i) {
        if (!(shares[i] >= 0 && shares[i] <= 1)) throw Failure("argument", "a share lies between 0 and 1");
        mix(batch.data() + i * size, batch.data() + static_cast<std::size_t>(partners[i]) * size, size, shares[i],
            out.data() + i * size);
    }
}

void cutmix(const Frame& frame, std::size_t element_size, Layout layout, Bytes batch,
            std::span<const std::int64_t> partners, std::span<const PixelBox> boxes, MutableBytes out) {
    const std::size_t size = check(batch, partners, boxes.size(), out);
    check_frame(frame, frame.size(), "image");
    if (element_size == 0 || element_size > 8 || (partners.size() && size != frame.size() * element_size))
        throw Failure("argument", "a sample has another size than its shape");
    for (const auto& box : boxes)
        if (box.top > box.bottom || box.left > box.right || box.bottom > frame.height || box.right > frame.width)
            throw Failure("argument", "a box does not lie in the image");
    std::memcpy(out.data(), batch.data(), batch.size());
    const std::size_t planes = layout == Layout::chw ? frame.channels : 1;
    const std::size_t pixel = element_size * (layout == Layout::chw ? 1 : frame.channels), row = pixel * frame.width;
    for (std::size_t i = 0; i < partners.size(); ++i) {
        const auto& box = boxes[i];
        for (std::size_t y = 0; y < planes * frame.height; ++y) {
            const std::size_t line = y % frame.height;
            if (line < box.top || line >= box.bottom) continue;
            const std::size_t at = y * row + box.left * pixel;
            std::memcpy(out.data() + i * size + at,
                        batch.data() + static_cast<std::size_t>(partners[i]) * size + at,
                        (box.right - box.left) * pixel);
        }
    }
}

}  // namespace fl
