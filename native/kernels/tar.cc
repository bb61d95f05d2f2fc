#include "tar.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace fl {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMostExtended = 16 << 20;  // of a pax header or a long name
constexpr std::size_t kLeastPiece = 4 << 10, kMostPiece = 1 << 20;
constexpr std::size_t kMany = 4;  // members in a piece from which on the next one is larger

[[noreturn]] void bad(std::uint64_t at, const std::string& what) {
    throw Failure("format", "offset " + std::to_string(at) + ": " + what);
}

std::uint64_t padded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

std::string_view text(const std::uint8_t* from, std::size_t most) {
    const auto* chars = reinterpret_cast<const char*>(from);
    return {chars, strnlen(chars, most)};
}

// Octal digits, with blanks before and a blank or a zero byte behind; or, with the first bit set, the other bits as one
// large number in two's complement.
std::uint64_t number(const std::uint8_t* from, std::size_t width, std::uint64_t at, const char* what) {
    if (from[0] & 0x80) {
        if (from[0] & 0x40) bad(at, std::string("a negative ") + what);
        std::uint64_t value = from[0] & 0x3f;
        for (std::size_t i = 1; i < width; ++i) {
            if (value >> 55) bad(at, std::string("a ") + what + " that no file has");
            value = value << 8 | from[i];
        }
        return value;
    }
    std::size_t i = 0;
    while (i < width && from[i] == ' ') ++i;
    std::uint64_t value = 0;
    for (; i < width && from[i] >= '0' && from[i] <= '7'; ++i) {
        if (value >> 60) bad(at, std::string("a ") + what + " that no file has");
        value = value << 3 | (from[i] - '0');
    }
    for (; i < width && from[i]; ++i)
        if (from[i] != ' ') bad(at, std::string("a ") + what + " that is no octal number");
    return value;
}

std::uint64_t decimal(const std::string& digits, std::uint64_t at, const char* what) {
    std::uint64_t value = 0;
    const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (wrong != std::errc() || end != digits.data() + digits.size() || value >> 62)
        bad(at, std::string("a pax header whose ") + what + " is no number");
    return value;
}

constexpr std::int64_t kSecond = 1'000'000'000;

// A time in a header; it may be negative where it is no octal number.
std::int64_t seconds(const std::uint8_t* from, std::uint64_t at) {
    if (!(from[0] & 0x80)) return static_cast<std::int64_t>(number(from, 12, at, "time"));
    std::uint64_t value = from[0] & 0x40 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 1; i < 12; ++i) value = value << 8 | from[i];
    return static_cast<std::int64_t>(value);
}

// A pax header's time: a decimal number with a fraction, kept as far as nanoseconds go.
std::int64_t nanoseconds(const std::string& text, std::uint64_t at) {
    const auto fail = [&] { bad(at, "a pax header whose mtime is no number"); };
    const auto* from = text.data();
    const auto* const last = from + text.size();
    const bool negative = from != last && *from == '-';
    from += negative;
    std::int64_t whole = 0, part = 0, value = 0;
    const auto [end, wrong] = std::from_chars(from, last, whole);
    if (wrong != std::errc() || whole < 0) fail();
    from = end;
    if (from != last && *from++ != '.') fail();
    for (std::int64_t unit = kSecond / 10; from != last; ++from, unit /= 10) {
        if (*from < '0' || *from > '9') fail();
        part += unit * (*from - '0');
    }
    if (__builtin_mul_overflow(whole, kSecond, &value) || __builtin_add_overflow(value, part, &value)) return 0;
    return negative ? -value : value;
}

bool is_blank(const std::uint8_t* block) {
    return std::all_of(block, block + kBlock, [](std::uint8_t byte) { return byte == 0; });
}

void check_sum(const std::uint8_t* header, std::uint64_t at) {
    std::uint64_t sum = 8 * ' ';
    std::int64_t with_sign = 8 * ' ';  // as some old programs had it
    for (std::size_t i = 0; i < kBlock; ++i) {
        if (i >= 148 && i < 156) continue;
        sum += header[i];
        with_sign += static_cast<std::int8_t>(header[i]);
    }
    const auto stored = number(header + 148, 8, at, "checksum");
    if (stored != sum && static_cast<std::int64_t>(stored) != with_sign)
        bad(at, "no header of a member: its checksum is " + std::to_string(stored) + ", and that of its bytes " +
                    std::to_string(sum));
}

// Records "LENGTH KEY=VALUE\n" of a pax header, the length counting all of it.
void read_records(Bytes data, std::uint64_t at, std::unordered_map<std::string, std::string>& into) {
    const std::string_view all(reinterpret_cast<const char*>(data.data()), data.size());
    std::size_t from = 0;
    while (from < all.size()) {
        if (!all[from] && all.find_first_not_of('\0', from) == all.npos) return;  // filled up, as some programs do
        std::size_t length = 0;
        const auto* const begin = all.data() + from;
        const auto [digits, wrong] = std::from_chars(begin, all.data() + all.size(), length);
        const auto head = static_cast<std::size_t>(digits - begin);
        if (wrong != std::errc() || head + 3 > length || length > all.size() - from || *digits != ' ' ||
            begin[length - 1] != '\n')
            bad(at, "a pax header with a record that is none, " + std::to_string(from) + " bytes into it");
        const std::string_view record(digits + 1, length - head - 2);
        const auto equals = record.find('=');
        if (equals == record.npos || !equals)
            bad(at, "a pax header with a record that is none, " + std::to_string(from) + " bytes into it");
        into[std::string(record.substr(0, equals))] = record.substr(equals + 1);
        from += length;
    }
}

const std::string* found(const std::unordered_map<std::string, std::string>& own,
                         const std::unordered_map<std::string, std::string>& global, const char* key) {
    if (const auto mine = own.find(key); mine != own.end()) return mine->second.empty() ? nullptr : &mine->second;
    if (const auto all = global.find(key); all != global.end() && !all->second.empty()) return &all->second;
    return nullptr;
}

bool has_sparse(const std::unordered_map<std::string, std::string>& records) {
    return std::any_of(records.begin(), records.end(),
                       [](const auto& one) { return one.first.starts_with("GNU.sparse."); });
}

}  // namespace

void TarScanner::add(const std::uint8_t* header, std::uint64_t at, std::uint64_t first, const Records& own,
                     const std::string* name, const std::string* link, std::uint64_t& after) {
    auto type = header[156];
    const bool posix = std::memcmp(header + 257, "ustar\0", 6) == 0;
    std::string path;
    if (const auto* known = found(own, global_, "path")) {
        path = *known;
    } else if (name) {
        path = *name;
    } else {
        if (posix && header[345]) path = std::string(text(header + 345, 155)) + '/';
        path += text(header, 100);
    }
    if (path.find('\0') != path.npos) bad(first, "a name with a zero byte in it");
    std::string target;
    if (const auto* known = found(own, global_, "linkpath"))
        target = *known;
    else if (link)
        target = *link;
    else
        target = text(header + 157, 100);
    if (type == 'S' || has_sparse(own) || has_sparse(global_))
        bad(first, "'" + path + "' is a sparse file, which is not read; tar without --sparse stores it whole");
    if (type == 'M' || type == 'D' || type == 'N')
        bad(first, std::string("'") + path + "' is of type '" + static_cast<char>(type) +
                       "', a part of a backup of several volumes or moments, which is not read");
    const bool known = type >= '1' && type <= '6';
    const bool regular = !known && type != 'V';
    if (regular) type = '0';
    // Before POSIX a directory was a file whose name ends so.
    if (regular && !path.empty() && path.back() == '/' && (header[156] == 0 || header[156] == '0')) type = '5';
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    std::uint64_t size = number(header + 124, 12, at, "size");
    if (const auto* stated = found(own, global_, "size")) size = decimal(*stated, first, "size");
    if (!regular) size = 0;
    std::int64_t time = 0;
    if (const auto* stated = found(own, global_, "mtime"))
        time = nanoseconds(*stated, first);
    else if (__builtin_mul_overflow(seconds(header + 136, at), kSecond, &time))
        time = 0;  // a time that no file has is no reason to refuse one
    const auto data = at + kBlock;
    if (size > size_ || data > size_ - size)
        bad(at, "'" + path + "' has " + std::to_string(size) + " bytes, and " + std::to_string(size_ - std::min(size_, data)) +
                    " follow: the tar was cut short");
    after = data + padded(size);
    if (type == 'V') return;
    members_.headers.push_back(static_cast<std::int64_t>(first));
    members_.offsets.push_back(type == '0' ? static_cast<std::int64_t>(data) : -1);
    members_.sizes.push_back(static_cast<std::int64_t>(size));
    members_.times.push_back(time);
    members_.modes.push_back(static_cast<std::uint32_t>(number(header + 100, 8, at, "mode") & 07777));
    members_.types.push_back(type);
    members_.names += path;
    members_.name_ends.push_back(static_cast<std::int64_t>(members_.names.size()));
    if (type == '1' || type == '2') members_.links += target;
    members_.link_ends.push_back(static_cast<std::int64_t>(members_.links.size()));
}

std::uint64_t TarScanner::member(Bytes data, std::uint64_t base) {
    const auto first = next_;
    auto at = first;
    Records own, global;
    bool is_global = false;
    std::string name, link;
    bool long_name = false, long_link = false;
    for (;;) {
        if (at >= size_ || size_ - at < kBlock)
            bad(at, at == size_ ? "the tar ends without the blocks of zeros that end one: it was cut short, or its writer "
                                  "was interrupted; where all members are there, append 1024 zero bytes"
                                : "the tar ends within a header: it was cut short");
        if (at - base + kBlock > data.size()) {
            needed_ = at + kBlock - first;
            return 0;
        }
        const auto* const header = data.data() + (at - base);
        if (is_blank(header)) {
            if (at != first) bad(first, "a header that says something of the next member, and no member follows");
            done_ = true;
            return at + kBlock;
        }
        check_sum(header, at);
        const auto type = header[156];
        const bool extended = type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K';
        if (!extended) {
            std::uint64_t after = 0;
            if (is_global)
                for (auto& [key, value] : global) global_[key] = std::move(value);
            add(header, at, first, own, long_name ? &name : nullptr, long_link ? &link : nullptr, after);
            return after;
        }
        const auto size = number(header + 124, 12, at, "size");
        if (size > kMostExtended) bad(at, "a header of " + std::to_string(size) + " bytes, which none has");
        const auto begin = at + kBlock, end = begin + padded(size);
        if (end > size_) bad(at, "the tar ends within a header: it was cut short");
        if (end - base > data.size()) {
            needed_ = end + kBlock - first;
            return 0;
        }
        const auto body = data.subspan(begin - base, size);
        if (type == 'L' || type == 'K') {
            (type == 'L' ? name : link) = text(body.data(), body.size());
            (type == 'L' ? long_name : long_link) = true;
        } else {
            read_records(body, at, type == 'g' ? global : own);
            is_global |= type == 'g';
        }
        at = end;
    }
}

void TarScanner::feed(Bytes data, std::uint64_t base) {
    while (!done_ && next_ >= base && next_ - base < data.size()) {
        const auto after = member(data, base);
        if (!after) return;
        next_ = after;
        needed_ = kBlock;
    }
}

void TarScanner::scan(int fd) {
    std::vector<std::uint8_t> piece;
    std::size_t wanted = 64 << 10;
    while (!done_) {
        if (next_ >= size_) {
            feed({}, next_);
            member({}, next_);  // says that it ends too early
        }
        piece.resize(std::min<std::uint64_t>(std::max<std::uint64_t>(wanted, needed_), size_ - next_));
        const auto base = next_;
        std::size_t have = 0;
        while (have < piece.size()) {
            const auto got = pread(fd, piece.data() + have, piece.size() - have, static_cast<off_t>(base + have));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw Failure("io", std::string("reading failed: ") + std::strerror(errno));
            if (got == 0) throw Failure("io", "the file became shorter while it was read");
            have += static_cast<std::size_t>(got);
        }
        const auto before = members_.size();
        feed(piece, base);
        if (members_.size() - before >= kMany)
            wanted = std::min(wanted * 2, kMostPiece);
        else
            wanted = std::max(wanted / 4, kLeastPiece);
    }
}

const TarMembers& TarScanner::finish(std::uint64_t size) {
    size_ = std::min(size_, size);
    if (!done_) member({}, next_);
    if (!done_) bad(next_, "the tar ends within a header: it was cut short");
    if (size % kBlock) bad(size, "the tar ends within a block: it was cut short");
    std::unordered_map<std::string_view, std::size_t> by_name;
    const auto part = [](const std::string& all, const std::vector<std::int64_t>& ends, std::size_t i) {
        const auto begin = i ? static_cast<std::size_t>(ends[i - 1]) : 0;
        return std::string_view(all).substr(begin, static_cast<std::size_t>(ends[i]) - begin);
    };
    if (std::find(members_.types.begin(), members_.types.end(), '1') == members_.types.end()) return members_;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        if (members_.types[i] == '1') {
            const auto target = by_name.find(part(members_.links, members_.link_ends, i));
            if (target == by_name.end())
                bad(static_cast<std::uint64_t>(members_.headers[i]),
                    "a hard link to '" + std::string(part(members_.links, members_.link_ends, i)) +
                        "', which is no file that comes before it");
            members_.offsets[i] = members_.offsets[target->second];
            members_.sizes[i] = members_.sizes[target->second];
        }
        if (members_.offsets[i] >= 0) by_name[part(members_.names, members_.name_ends, i)] = i;
    }
    return members_;
}

TarSamples tar_samples(Bytes names, std::span<const std::int64_t> ends, std::span<const std::uint8_t> chosen) {
    if (ends.size() != chosen.size()) throw Failure("argument", "a choice for each name");
    TarSamples out;
    out.samples.assign(ends.size(), -1);
    out.fields.assign(ends.size(), -1);
    std::unordered_map<std::string_view, std::int64_t> by_key;
    std::unordered_map<std::string, std::int32_t> by_field;
    std::vector<std::vector<std::int32_t>> has;  // fields of each sample
    std::string field;
    std::int64_t last = -1;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const auto begin = i ? ends[i - 1] : 0;
        if (begin < 0 || ends[i] < begin || static_cast<std::uint64_t>(ends[i]) > names.size())
            throw Failure("argument", "names end one behind the other");
        if (!chosen[i]) continue;
        const std::string_view name(reinterpret_cast<const char*>(names.data()) + begin,
                                    static_cast<std::size_t>(ends[i] - begin));
        const auto slash = name.rfind('/');
        const auto base = slash == name.npos ? 0 : slash + 1;
        const auto dot = name.find('.', base);
        if (dot == name.npos || dot == base) continue;
        if (slash == name.npos && name.starts_with("__") && name.ends_with("__")) continue;  // about the tar
        const auto key = name.substr(0, dot);
        field.assign(name.substr(dot + 1));
        for (auto& letter : field)
            if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
        const auto kind = by_field.try_emplace(field, static_cast<std::int32_t>(out.field_names.size())).first->second;
        if (kind == static_cast<std::int32_t>(out.field_names.size())) out.field_names.push_back(field);
        auto place = by_key.find(key);
        if (place != by_key.end()) {
            const auto& there = has[static_cast<std::size_t>(place->second)];
            if (std::find(there.begin(), there.end(), kind) != there.end()) {
                if (place->second == last) {
                    Failure failure("format", "'" + std::string(name) + "' comes twice in one sample");
                    failure.position = static_cast<std::int64_t>(i);
                    throw failure;
                }
                place = by_key.end();
            }
        }
        if (place == by_key.end()) {
            last = static_cast<std::int64_t>(has.size());
            by_key[key] = last;
            has.emplace_back();
            out.keys += key;
            out.key_ends.push_back(static_cast<std::int64_t>(out.keys.size()));
        } else {
            last = place->second;
        }
        has[static_cast<std::size_t>(last)].push_back(kind);
        out.samples[i] = last;
        out.fields[i] = kind;
    }
    return out;
}

}  // namespace fl
