#include "example.h"

#include <cstring>
#include <string>

namespace fl {

namespace {

enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

[[noreturn]] void broken(std::size_t at, const char* what) {
    throw Failure("format", "at byte " + std::to_string(at) + ": " + what);
}

// One message: its fields, one after the other. Places are told within the whole of the data.
class Message {
public:
    Message(Bytes whole, std::size_t at, std::size_t end) : whole_(whole), at_(at), end_(end) {}

    bool next() {
        if (at_ >= end_) return false;
        begin_ = at_;
        const auto key = varint();
        field_ = key >> 3;
        wire_ = static_cast<Wire>(key & 7);
        switch (wire_) {
            case Wire::varint: value_ = varint(); break;
            case Wire::bytes: take(varint()); break;
            case Wire::fixed32: take(4); break;
            case Wire::fixed64: take(8); break;
            default: broken(begin_, "a wire type that is not known");
        }
        return true;
    }

    std::uint64_t field() const { return field_; }
    bool is_bytes() const { return wire_ == Wire::bytes; }
    bool is_varint() const { return wire_ == Wire::varint; }
    bool is_fixed32() const { return wire_ == Wire::fixed32; }
    std::uint64_t value() const { return value_; }
    std::size_t begin() const { return begin_; }
    Bytes part() const { return whole_.subspan(from_, at_ - from_); }
    Message inner() const { return Message(whole_, from_, at_); }
    bool over() const { return at_ >= end_; }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 70; shift += 7) {
            if (at_ >= end_) broken(at_, "an integer is cut short");
            const std::uint64_t byte = whole_[at_++];
            value |= (byte & 127) << shift;
            if (byte < 128) return value;
        }
        broken(at_, "an integer has more than ten bytes");
    }

private:
    void take(std::uint64_t size) {
        if (size > end_ - at_) broken(begin_, "more bytes should follow than do");
        from_ = at_;
        at_ += size;
    }

    Bytes whole_;
    std::size_t at_, end_;
    std::size_t begin_ = 0, from_ = 0;
    std::uint64_t field_ = 0, value_ = 0;
    Wire wire_ = Wire::varint;
};

std::vector<Bytes> bytes_of(Message list) {
    std::vector<Bytes> found;
    while (list.next()) {
        if (list.field() != 1 || !list.is_bytes()) broken(list.begin(), "a list of bytes is broken");
        found.push_back(list.part());
    }
    return found;
}

std::vector<float> floats_of(Message list) {
    std::vector<float> found;
    while (list.next()) {
        const auto part = list.field() == 1 && (list.is_bytes() || list.is_fixed32()) ? list.part() : Bytes();
        if (list.field() != 1 || !(list.is_bytes() || list.is_fixed32()) || part.size() % 4)
            broken(list.begin(), "a list of floats is broken");
        const auto before = found.size();
        found.resize(before + part.size() / 4);
        if (!part.empty()) std::memcpy(found.data() + before, part.data(), part.size());
    }
    return found;
}

std::vector<std::int64_t> integers_of(Message list) {
    std::vector<std::int64_t> found;
    while (list.next()) {
        if (list.field() != 1 || !(list.is_bytes() || list.is_varint()))
            broken(list.begin(), "a list of integers is broken");
        if (list.is_varint()) {
            found.push_back(static_cast<std::int64_t>(list.value()));
            continue;
        }
        for (auto packed = list.inner(); !packed.over();) found.push_back(static_cast<std::int64_t>(packed.varint()));
    }
    return found;
}

void fill(Feature& feature, Message message) {
    while (message.next()) {
        if (!message.is_bytes() || message.field() < 1 || message.field() > 3)
            broken(message.begin(), "a feature holds bytes, floats or integers");
        feature = Feature{feature.name, static_cast<FeatureKind>(message.field()), {}, {}, {}};
        switch (feature.kind) {
            case FeatureKind::bytes: feature.bytes = bytes_of(message.inner()); break;
            case FeatureKind::floats: feature.floats = floats_of(message.inner()); break;
            default: feature.integers = integers_of(message.inner());
        }
    }
}

Feature entry(Message message) {
    Feature feature;
    while (message.next()) {
        if (!message.is_bytes() || message.field() < 1 || message.field() > 2)
            broken(message.begin(), "no name and feature");
        if (message.field() == 1) {
            const auto name = message.part();
            feature.name = {reinterpret_cast<const char*>(name.data()), name.size()};
        } else {
            fill(feature, message.inner());
        }
    }
    return feature;
}

}  // namespace

std::vector<Feature> parse_example(Bytes data) {
    std::vector<Feature> found;
    Message example(data, 0, data.size());
    while (example.next()) {
        if (example.field() != 1 || !example.is_bytes()) broken(example.begin(), "is no tf.train.Example");
        auto features = example.inner();
        while (features.next()) {
            if (features.field() != 1 || !features.is_bytes()) broken(features.begin(), "is no tf.train.Example");
            found.push_back(entry(features.inner()));
        }
    }
    return found;
}

}  // namespace fl
