// What every kernel speaks: spans of bytes, and one exception for bytes that are not what they claim to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace fl {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

// `kind` is a stable word that Python branches on; `position` counts within the call's own rows.
struct Failure : std::runtime_error {
    Failure(const char* kind, const std::string& message, std::uint32_t stored = 0, std::uint32_t computed = 0)
        : std::runtime_error(message), kind(kind), stored(stored), computed(computed) {}
    const char* kind;
    std::int64_t position = 0;
    std::uint32_t stored;
    std::uint32_t computed;
};

// Little-endian loads and stores from any address; every supported target is little-endian.
template <class T>
T load(const void* from) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
void store(void* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

}  // namespace fl
