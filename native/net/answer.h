// The head of a server's answer (HTTP/1.1), taken apart, and whether it is the range that was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fl::net {

// What a request asks for: `size` bytes from `begin` on or, of an object that ends before, those there are.
struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    bool at_most = false;
};

struct Answer {
    int status = 0;
    std::uint64_t length = 0;  // of the body
    std::uint64_t total = 0;   // bytes of the object
    std::string etag;
    std::string modified;
    bool stays_open = false;
    std::string wrong;  // why it is not what was asked for; empty if it is
};

// `head` is all up to and with the empty line. Never throws, whatever the bytes.
Answer parse_answer(std::string_view head, const Span& wanted);

}  // namespace fl::net
