// A zstd stream, of one frame or several, unpacked as its bytes come.
#pragma once

#include <memory>
#include <vector>

#include "bytes.h"

namespace fl {

class Unzstd {
public:
    Unzstd();
    ~Unzstd();
    Unzstd(const Unzstd&) = delete;
    Unzstd& operator=(const Unzstd&) = delete;

    // Unpacks the next bytes behind what is in `out`. Throws Failure("codec").
    void feed(Bytes data, std::vector<std::uint8_t>& out);

    // Whether what was given ends with a frame.
    bool whole() const { return whole_; }

private:
    struct State;
    std::unique_ptr<State> state_;
    bool whole_ = true;
};

}  // namespace fl
