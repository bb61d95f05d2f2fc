#include "program_image.h"

#include "channels.h"
#include "colour.h"
#include "jpeg_crop.h"
#include "runs.h"
#include "webp.h"

namespace fl {
namespace {

// A JPEG is decoded at 1/2, 1/4 or 1/8 only where that leaves this many times the pixels asked for along each side:
// closer to the target, scaling the DCT shows against a filter over all pixels.
constexpr double kSpare = 2.0;
constexpr std::size_t kLargest = 1 << 28;  // bytes of an image between two steps

bool is_mask(StoredKind stored) { return stored == StoredKind::runs || stored == StoredKind::labels; }

void mirror_row(const std::uint8_t* from, std::uint32_t width, std::uint32_t channels, std::uint8_t* to) {
    with_channels(channels, [&]<std::uint32_t kChannels>() {
        for (std::size_t x = 0; x < width; ++x) copy_pixel<kChannels>(to + x * kChannels, from + (width - 1 - x) * kChannels);
    });
}

std::uint8_t* put(std::uint8_t* to, std::int32_t number) {
    store(to, number);
    return to + sizeof number;
}

// A table as a PartHeader has it: `shift` is added to positions.
std::uint8_t* put_axis(const Axis<std::int32_t>& axis, std::int32_t shift, std::uint8_t* to) {
    for (std::size_t i = 0; i < axis.first.size(); ++i) {
        to = put(to, static_cast<std::int32_t>(axis.first[i]) + shift);
        const std::size_t bytes = axis.stride * sizeof(std::int32_t);
        std::memcpy(to, axis.weights.data() + i * axis.stride, bytes);
        to += bytes;
    }
    return to;
}

std::uint8_t* put_places(std::uint32_t count, std::int32_t first, bool reversed, std::uint8_t* to) {
    for (std::uint32_t i = 0; i < count; ++i)
        to = put(put(to, first + static_cast<std::int32_t>(reversed ? count - 1 - i : i)), 1 << kWeightBits);
    return to;
}

}  // namespace

void ProgramImage::begin(const Program& program, Bytes payload, const ImageShape& shape) {
    program_ = &program;
    payload_ = payload;
    orientation_ = program.upright ? orientation_of(kind_of(program.stored), payload) : Orientation{};
    shape_ = program.upright_shapes ? orientation_.turned(shape) : shape;
    stored_ = true;
    const auto seen = orientation_.turned(shape_);
    source_height_ = height_ = seen.height;
    source_width_ = width_ = seen.width;
    cut_ = {0, 0, width_, height_};
    resized_ = mirrored_ = false;
    channels_ = is_mask(program.stored) ? 1 : 3;
    geometry_ = program.upright_shapes ? kSame : orientation_.map(shape_.height, shape_.width);
}

void ProgramImage::crop(const Cut& cut) {
    auto& whole = resized_ ? window_ : cut_;
    const auto left = mirrored_ ? width_ - cut.left - cut.width : cut.left;  // the mirror comes last
    whole = {whole.left + left, whole.top + cut.top, cut.width, cut.height};
    height_ = cut.height;
    width_ = cut.width;
    moved({1, 0, -static_cast<double>(cut.left), 0, 1, -static_cast<double>(cut.top)});
}

void ProgramImage::resize(std::uint32_t height, std::uint32_t width, Filter filter) {
    if (resized_ || mirrored_) load();
    resized_ = true;
    filter_ = filter;
    moved({static_cast<double>(width) / width_, 0, 0, 0, static_cast<double>(height) / height_, 0});
    resized_height_ = height_ = height;
    resized_width_ = width_ = width;
    window_ = {0, 0, width, height};
}

void ProgramImage::mirror() {
    mirrored_ = !mirrored_;
    moved({-1, 0, static_cast<double>(width_), 0, 1, 0});
}

void ProgramImage::gray_while_stored() { channels_ = 1; }

MutableBytes ProgramImage::pixels() {
    load();
    return {image_.data(), frame().size()};
}

MutableBytes ProgramImage::spare(const Frame& frame) {
    if (frame.size() > kLargest)
        throw Failure("size", "the image would become " + std::to_string(frame.height) + "x" +
                                  std::to_string(frame.width) + " on its way");
    if (other_.size() < frame.size()) other_.resize(frame.size());
    return {other_.data(), frame.size()};
}

void ProgramImage::accept(const Frame& frame) {
    image_.swap(other_);
    stored_ = resized_ = mirrored_ = false;
    source_height_ = height_ = frame.height;
    source_width_ = width_ = frame.width;
    channels_ = frame.channels;
    cut_ = {0, 0, width_, height_};
}

void ProgramImage::load() {
    const bool whole = cut_.width == source_width_ && cut_.height == source_height_;
    if (!stored_ && whole && !resized_ && !mirrored_) return;
    const Frame to = frame();
    const auto out = spare(to);
    prepare();
    for (std::uint32_t y = 0; y < to.height; ++y) {
        auto* place = out.data() + y * to.row();
        if (const auto* row = row_at(y, place); row != place) std::memcpy(place, row, to.row());
    }
    accept(to);
}

void ProgramImage::check_size() const {
    const auto& program = *program_;
    if (height_ != program.height || width_ != program.width || channels_ != program.cast.channels)
        throw Failure("size", "the image is " + std::to_string(height_) + "x" + std::to_string(width_) + ", not " +
                                  std::to_string(program.height) + "x" + std::to_string(program.width));
}

bool ProgramImage::finish_as_part(MutableBytes out) {
    check_size();
    if (!stored_ || program_->stored != StoredKind::jpeg || !orientation_.upright() || channels_ != 3) return false;
    const auto payload = program_->seekable ? jpeg_split(payload_) : JpegPayload{payload_, {}};
    ResizeSpec spec{cut_.height, cut_.width, channels_, {}, resized_height_, resized_width_, filter_, mirrored_, window_};
    spec.box = {0, 0, static_cast<float>(cut_.width), static_cast<float>(cut_.height)};
    const auto region = needed(spec);
    const auto part = jpeg_cut_box(payload.jpeg, payload.index, shape_,
                                   {cut_.left + region.left, cut_.top + region.top, region.right - region.left,
                                    region.bottom - region.top});
    if (!part) return false;
    PartHeader header;
    header.bytes = static_cast<std::uint32_t>(part->data.size());
    header.width = part->width;
    header.height = part->height;
    header.across = resized_ ? resizer_.across().stride : 1;
    header.down = resized_ ? resizer_.down().stride : 1;
    const std::size_t numbers = width_ * (1 + std::size_t{header.across}) + height_ * (1 + std::size_t{header.down});
    const std::size_t at = sizeof header + numbers * sizeof(std::int32_t);
    if (at + part->data.size() > out.size()) return false;
    header.at = static_cast<std::uint32_t>(at);
    store(out.data(), header);
    auto* to = out.data() + sizeof header;
    const auto left = static_cast<std::int32_t>(cut_.left) - static_cast<std::int32_t>(part->left);
    const auto top = static_cast<std::int32_t>(cut_.top) - static_cast<std::int32_t>(part->top);
    if (resized_) {
        to = put_axis(resizer_.across(), left, to);
        to = put_axis(resizer_.down(), top, to);
    } else {
        to = put_places(width_, left, mirrored_, to);
        to = put_places(height_, top, false, to);
    }
    std::memcpy(to, part->data.data(), part->data.size());
    return true;
}

void ProgramImage::finish(const Cast& cast, MutableBytes out) {
    const auto& program = *program_;
    check_size();
    const std::size_t plane = std::size_t{height_} * width_;
    const std::size_t samples = program.cast.layout == Layout::hwc ? channels_ : 1;
    const std::size_t step = std::size_t{width_} * samples * size_of(program.cast.element);
    prepare();
    line_.resize(frame().row());
    for (std::uint32_t y = 0; y < height_; ++y) cast.row(row_at(y, line_.data()), width_, out.data() + y * step, plane);
}

// Rows from the first to the last, none twice: where they lie, or made in `room`.
const std::uint8_t* ProgramImage::row_at(std::uint32_t y, std::uint8_t* room) {
    if (resized_) {
        resizer_.row(y, room);
        return room;
    }
    const auto* row = pixels_ + y * stride_;
    if (!mirrored_) return row;
    mirror_row(row, width_, channels_, room);
    return room;
}

// Has the pixels that the rows to come are made of; only those of a resize change, others are cut out.
void ProgramImage::prepare() {
    ResizeSpec spec{cut_.height, cut_.width, channels_, {}, resized_height_, resized_width_, filter_, mirrored_, window_};
    spec.box = {0, 0, static_cast<float>(cut_.width), static_cast<float>(cut_.height)};
    if (stored_) {
        decode(spec);
    } else {
        const auto region = needed(spec);
        stride_ = static_cast<std::ptrdiff_t>(source_width_) * channels_;
        pixels_ = image_.data() + (cut_.top + region.top) * stride_ +
                  static_cast<std::ptrdiff_t>(cut_.left + region.left) * channels_;
    }
    if (resized_) resizer_.source(pixels_, stride_);
}

Region ProgramImage::needed(const ResizeSpec& spec) {
    return resized_ ? resizer_.prepare(spec) : Region{0, 0, cut_.height, cut_.width};
}

// Decodes what is needed of the cut, and turns it. Where the image is decoded smaller, the cut's edges may lie within a
// pixel.
void ProgramImage::decode(ResizeSpec& spec) {
    auto base = orientation_.stored(cut_, source_height_, source_width_);
    std::uint32_t shrink = 1;
    if (program_->stored == StoredKind::jpeg && resized_ && spec.filter != Filter::nearest)
        while (shrink < 8 && cut_.width >= kSpare * 2 * shrink * spec.out_width &&
               cut_.height >= kSpare * 2 * shrink * spec.out_height)
            shrink *= 2;
    if (shrink > 1) shrink_cut(base, shrink, spec);
    const auto region = needed(spec);
    const std::uint32_t height = region.bottom - region.top, width = region.right - region.left;
    auto part = orientation_.stored({region.left, region.top, width, height}, spec.height, spec.width);
    part.left += base.left;
    part.top += base.top;
    decode_part(part, shrink);
    if (!orientation_.upright()) {
        turned_.resize(std::size_t{height} * width * shape_.channels);
        orientation_.turn(pixels_, stride_, part.height, part.width, shape_.channels, turned_.data());
        pixels_ = turned_.data();
        stride_ = static_cast<std::ptrdiff_t>(width) * shape_.channels;
    }
    convert(height, width, shape_.channels);
}

// From `cut`, a part of the stored image, to the pixels of the smaller one that it touches. `spec` is told how many these
// are, and which part of them is the cut, as they stand upright.
void ProgramImage::shrink_cut(Window& cut, std::uint32_t shrink, ResizeSpec& spec) const {
    const auto along = [&](std::uint32_t& at, std::uint32_t& size, bool reversed) {
        const auto part = static_cast<float>(shrink);
        const std::uint32_t first = at / shrink, count = (at + size + shrink - 1) / shrink - first;
        float begin = static_cast<float>(at) / part - static_cast<float>(first);
        float end = begin + static_cast<float>(size) / part;
        if (reversed) {
            std::swap(begin, end);
            begin = static_cast<float>(count) - begin;
            end = static_cast<float>(count) - end;
        }
        at = first;
        size = count;
        return std::pair(begin, end);
    };
    const auto across = along(cut.left, cut.width, orientation_.across);
    const auto down = along(cut.top, cut.height, orientation_.down);
    const bool swapped = orientation_.swapped;
    spec.width = swapped ? cut.height : cut.width;
    spec.height = swapped ? cut.width : cut.height;
    const auto& x = swapped ? down : across;
    const auto& y = swapped ? across : down;
    spec.box = {x.first, y.first, x.second, y.second};
}

// The pixels of a part of the stored image, which was made smaller by `shrink`.
void ProgramImage::decode_part(const Window& part, std::uint32_t shrink) {
    if (program_->stored == StoredKind::jpeg) {
        JpegPayload parts{payload_, {}};
        if (program_->seekable) parts = jpeg_split(payload_);
        const JpegBox box{part.left, part.top, part.width, part.height};
        stride_ = static_cast<std::ptrdiff_t>(box.width) * shape_.channels;
        decoded_.resize(static_cast<std::size_t>(stride_) * box.height);
        jpeg_decode_box(parts.jpeg, parts.index, {shape_, box, shrink, 0, JpegRoute::automatic}, decoded_.data(),
                        static_cast<std::size_t>(stride_));
        pixels_ = decoded_.data();
        return;
    }
    if (program_->stored == StoredKind::webp) {
        const auto rows = webp_decode_part(payload_, shape_, part, decoded_);
        pixels_ = rows.first;
        stride_ = rows.stride;
        return;
    }
    if (program_->stored == StoredKind::runs) {
        stride_ = shape_.width;
        decoded_.resize(std::size_t{part.height} * shape_.width);
        runs_decode_rows(payload_, shape_, part.top, decoded_);
        pixels_ = decoded_.data() + part.left;
        return;
    }
    const std::uint8_t* whole = payload_.data();
    if (program_->stored != StoredKind::raw) {
        decoded_.resize(shape_.bytes());
        image_decode({kind_of(program_->stored)}, payload_, shape_, decoded_);
        whole = decoded_.data();
    }
    stride_ = static_cast<std::ptrdiff_t>(shape_.width) * shape_.channels;
    pixels_ = whole + part.top * stride_ + static_cast<std::ptrdiff_t>(part.left) * shape_.channels;
}

// Gray to colours by repeating, colours to gray by luma, alpha left out: as Pillow converts.
void ProgramImage::convert(std::uint32_t height, std::uint32_t width, std::uint32_t from) {
    const std::uint32_t to = channels_;
    if (from == to) return;
    converted_.resize(std::size_t{height} * width * to);
    const std::uint32_t colours = from <= 2 ? 1 : 3;
    line_.resize(std::size_t{width} * 3);
    for (std::uint32_t y = 0; y < height; ++y) {
        const auto* row = pixels_ + y * stride_;
        auto* out = converted_.data() + std::size_t{y} * width * to;
        if (colours == to) {
            for (std::uint32_t x = 0; x < width; ++x) std::memcpy(out + x * to, row + x * from, to);
        } else if (to == 3) {
            for (std::uint32_t x = 0; x < width; ++x) std::memset(out + x * 3, row[x * from], 3);
        } else {
            for (std::uint32_t x = 0; x < width; ++x) std::memcpy(line_.data() + x * 3, row + x * from, 3);
            grayscale({1, width, 3}, {line_.data(), std::size_t{width} * 3}, 1, {out, width}, best_simd());
        }
    }
    pixels_ = converted_.data();
    stride_ = static_cast<std::ptrdiff_t>(width) * to;
}

}  // namespace fl
