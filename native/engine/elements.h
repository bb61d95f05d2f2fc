// Payloads as arrays whose leading dimension varies: how long each is, and rows of one length made of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "payloads.h"

namespace fl {

// An element is what one step along the leading dimension holds; it is made of items, the array's numbers.
struct Elements {
    enum class Stated : std::uint8_t {
        nothing,  // the metadata row does not speak of the shape
        length,   // it begins with the length
        shape,    // it is the number of dimensions, and room for eight; elements are then as large as it says
    };
    std::size_t bytes = 0;  // of an element, or where the shape is stated of an item; 0: the payloads are no elements
    Stated stated = Stated::nothing;
    std::uint64_t length = 0;  // rows are padded to this, or where it is 0 to the batch's longest
    std::uint64_t multiple = 1;  // of which the longest is made one
    bool truncate = false;
    std::vector<std::uint8_t> fill;  // the item that stands where there is none

    explicit operator bool() const { return bytes != 0; }
    static constexpr std::size_t kShapeBytes = 9 * sizeof(std::uint64_t);
};

// Bytes of one element of this payload. Throws Failure: "shape" or "length" where it can't be part of such a batch,
// "format" where sizes contradict each other.
std::uint64_t element_bytes(const Elements& elements, const Extent& extent, const std::uint8_t* metadata);

// Whether two metadata rows that state a shape agree in all but the leading dimension.
bool same_element(const std::uint8_t* one, const std::uint8_t* other);

// The shape that a metadata row states, for people.
std::string stated_shape(const std::uint8_t* metadata);

// Whether `rows` rows of `bytes` each may be made of payloads with `stored` bytes in the file. One payload that claims
// much would otherwise be paid for by every row; this way a batch gets no more memory than without padding.
bool borne_out(std::uint64_t rows, std::uint64_t bytes, std::uint64_t stored);

// `item` again and again; `out` has room for a whole number of them.
void fill_items(MutableBytes out, std::span<const std::uint8_t> item);

}  // namespace fl
