#include "answer.h"

#include <algorithm>
#include <charconv>

namespace fl::net {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool is(std::string_view text, std::string_view lowered) {
    return std::equal(text.begin(), text.end(), lowered.begin(), lowered.end(),
                      [](char a, char b) { return lower(a) == b; });
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<std::uint64_t> number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

struct ContentRange {
    std::uint64_t first, last, total;
};

// "bytes 0-99/1000"
std::optional<ContentRange> content_range(std::string_view text) {
    const auto space = text.find(' '), dash = text.find('-'), slash = text.find('/');
    if (space == std::string_view::npos || dash == std::string_view::npos || slash == std::string_view::npos ||
        space > dash || dash > slash || !is(text.substr(0, space), "bytes"))
        return std::nullopt;
    const auto first = number(text.substr(space + 1, dash - space - 1));
    const auto last = number(text.substr(dash + 1, slash - dash - 1));
    const auto total = number(text.substr(slash + 1));
    if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
    return ContentRange{*first, *last, *total};
}

// Texts that are handed on: no control characters, nothing beyond ASCII.
bool is_plain(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= 32 && c < 127; });
}

bool mentions(std::string_view list, std::string_view lowered) {
    while (!list.empty()) {
        const auto comma = list.find(',');
        if (is(trimmed(list.substr(0, comma)), lowered)) return true;
        if (comma == std::string_view::npos) break;
        list.remove_prefix(comma + 1);
    }
    return false;
}

}  // namespace

Answer parse_answer(std::string_view head, const Span& wanted) {
    Answer answer;
    const auto wrong = [&](std::string why) {
        answer.wrong = std::move(why);
        answer.stays_open = false;
        return answer;
    };
    auto end = head.find("\r\n");
    const auto first = head.substr(0, end);
    if (end == std::string_view::npos || first.size() < 12 || (!first.starts_with("HTTP/1.1 ") && !first.starts_with("HTTP/1.0 ")) ||
        (first.size() > 12 && first[12] != ' '))
        return wrong("the server does not speak HTTP/1.1");
    const auto status = number(first.substr(9, 3));
    if (!status) return wrong("the server's answer has no status");
    answer.status = static_cast<int>(*status);
    answer.stays_open = first[7] == '1';

    std::optional<std::uint64_t> length;
    std::optional<ContentRange> range;
    bool seen_range = false, seen_etag = false, seen_modified = false, encoded = false;
    for (auto at = end + 2;; at = end + 2) {
        end = head.find("\r\n", at);
        if (end == std::string_view::npos) return wrong("a line of the answer's head has no end");
        const auto line = head.substr(at, end - at);
        if (line.empty()) break;
        const auto colon = line.find(':');
        const auto name = line.substr(0, colon);
        // A line that begins with white space would go on with the one before.
        if (colon == std::string_view::npos || name.empty() || name.find_first_of(" \t") != std::string_view::npos)
            return wrong("a line of the answer's head is none");
        const auto value = trimmed(line.substr(colon + 1));
        if (is(name, "content-length")) {
            const auto said = number(value);
            if (!said || (length && *length != *said)) return wrong("the answer's length is unclear");
            length = said;
        } else if (is(name, "content-range")) {
            if (seen_range) return wrong("the answer has two ranges");
            seen_range = true;
            range = content_range(value);
        } else if (is(name, "etag")) {
            if (seen_etag || !is_plain(value)) return wrong("the object's ETag is unclear");
            seen_etag = true;
            answer.etag = value;
        } else if (is(name, "last-modified")) {
            if (seen_modified || !is_plain(value)) return wrong("the object's time is unclear");
            seen_modified = true;
            answer.modified = value;
        } else if (is(name, "transfer-encoding")) {
            encoded = true;
        } else if (is(name, "content-encoding")) {
            encoded |= !is(value, "identity");
        } else if (is(name, "connection")) {
            if (mentions(value, "close")) answer.stays_open = false;
        }
    }
    if (answer.status != 206) return wrong("the server answered " + std::to_string(answer.status));
    if (encoded) return wrong("the answer is encoded");
    if (!length) return wrong("the answer's length is not told");
    if (!range) return wrong("which range the answer has is not told");
    const auto size = range->last - range->first + 1;
    const auto least = wanted.at_most && range->total > wanted.begin ? std::min(wanted.size, range->total - wanted.begin)
                                                                     : wanted.size;
    if (range->first != wanted.begin || size != least || *length != size)
        return wrong(std::to_string(least) + " bytes from " + std::to_string(wanted.begin) + " on were asked for, " +
                     std::to_string(*length) + " from " + std::to_string(range->first) + " on were announced");
    answer.length = size;
    answer.total = range->total;
    return answer;
}

}  // namespace fl::net
