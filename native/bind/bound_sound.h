// A sound program as Python holds it; the engine takes it from there.
#pragma once

#include "bind.h"

#include "sound_program.h"

namespace bind {

struct BoundSound {
    std::shared_ptr<const fl::SoundProgram> program;
};

struct BoundMel {
    std::shared_ptr<const fl::Mel> mel;
};

}  // namespace bind
