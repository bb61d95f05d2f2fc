// Mixup and CutMix over whole batches. Sample i of the output is made of sample i and of sample partners[i] of the input;
// input and output must not overlap.
#pragma once

#include "cast.h"
#include "geometry.h"

namespace fl {

// shares[i] of sample i, and the rest of its partner. uint8 in 16-bit fixed point, rounded to the nearest; floats in
// float32, both products and the sum rounded each on its own, then to the element.
void mixup(Element element, Bytes batch, std::span<const std::int64_t> partners, std::span<const float> shares,
           MutableBytes out);

// boxes[i] of the partner, on the rest of sample i.
void cutmix(const Frame& frame, std::size_t element_size, Layout layout, Bytes batch,
            std::span<const std::int64_t> partners, std::span<const PixelBox> boxes, MutableBytes out);

}  // namespace fl
