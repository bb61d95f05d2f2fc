// tf.train.Example read from protobuf's wire format. src/fastloader/formats/example.py is the slow twin, and says more.
#pragma once

#include <string_view>
#include <vector>

#include "bytes.h"

namespace fl {

enum class FeatureKind { none, bytes, floats, integers };

// A feature and its values; those of bytes and the name point into the data.
struct Feature {
    std::string_view name;
    FeatureKind kind = FeatureKind::none;
    std::vector<Bytes> bytes;
    std::vector<float> floats;
    std::vector<std::int64_t> integers;
};

// The features in the order of the data, where a name may come twice: the last one counts. Throws Failure("format").
std::vector<Feature> parse_example(Bytes data);

}  // namespace fl
