#include "jpeg_crop.h"

#include <algorithm>

#include "jpeg_splice.h"
#include "libjpeg.h"

namespace fl {
namespace {

std::uint32_t ceil_div(std::uint32_t value, std::uint32_t by) { return (value + by - 1) / by; }

// What one thread needs again and again.
struct Workshop {
    JpegRead spliced;  // only ever given files that bring all their tables
    BitWriter small;
    std::vector<JpegRun> runs;
    std::vector<std::uint8_t> rows;
};

Workshop& workshop() {
    thread_local Workshop mine;
    return mine;
}

// What to take of a JPEG: a box, and where its pixels go.
struct Wanted {
    JpegBox box;
    std::uint32_t shrink;
    std::uint32_t channels;
    bool partial;
    std::uint8_t* out;
    std::size_t stride;
};

// The sizes that blocks are decoded to. libjpeg-turbo scales alike in both directions, also where it has the names of
// libjpeg 7 and 8, which do not.
#if JPEG_LIB_VERSION >= 70
int scaled_size(const jpeg_component_info& component) { return component.DCT_h_scaled_size; }
int least_scaled_size(const jpeg_decompress_struct& codec) { return codec.min_DCT_h_scaled_size; }
#else
int scaled_size(const jpeg_component_info& component) { return component.DCT_scaled_size; }
int least_scaled_size(const jpeg_decompress_struct& codec) { return codec.min_DCT_scaled_size; }
#endif

// Whether leaving out rows and columns is exact. When libjpeg leaves out columns it takes it that all components are
// scaled alike, which matters where one is upsampled.
bool may_leave_out(const jpeg_decompress_struct& codec) {
    const int least = least_scaled_size(codec);
    const auto full_size = [&](int factor, int size, int largest) { return factor * size == largest * least; };
    for (int i = 0; i < codec.num_components; ++i) {
        const auto& one = codec.comp_info[i];
        const int size = scaled_size(one);
        if (size != least && !(full_size(one.h_samp_factor, size, codec.max_h_samp_factor) &&
                               full_size(one.v_samp_factor, size, codec.max_v_samp_factor)))
            return false;
    }
    return !codec.arith_code;
}

bool start(JpegRead& read, const Wanted& wanted) {
    if (setjmp(read.errors.jump)) return false;
    auto& codec = read.codec;
    codec.out_color_space = wanted.channels == 4 && !read.ink() ? JCS_EXT_RGBX : read.pixels();
    codec.dct_method = JDCT_ISLOW;
    codec.scale_num = 1;
    codec.scale_denom = wanted.shrink;
    jpeg_start_decompress(&codec);
    return true;
}

// Pixels of the box. `first` is the leftmost column of what libjpeg gives, and `rows` has room for kRows of that.
constexpr JDIMENSION kRows = 8;

// Of a pixel as libjpeg gives it.
std::size_t samples_of(const JpegRead& read, const Wanted& wanted) { return read.ink() ? 4 : wanted.channels; }

bool read_box(JpegRead& read, const Wanted& wanted, JDIMENSION first, std::uint8_t* rows) {
    if (setjmp(read.errors.jump)) return false;
    auto& codec = read.codec;
    const auto& box = wanted.box;
    const std::size_t samples = samples_of(read, wanted);
    const std::size_t row_bytes = codec.output_width * samples;
    const std::size_t begin = (box.x - first) * samples;
    const std::size_t size = std::size_t{box.width} * wanted.channels;
    const bool straight = size == row_bytes && !read.ink();
    if (wanted.partial && box.y) jpeg_skip_scanlines(&codec, box.y);
    while (codec.output_scanline < box.y + box.height) {
        JSAMPROW lines[kRows];
        const auto at = codec.output_scanline;
        const bool inside = at >= box.y;
        const auto left = inside ? box.y + box.height - at : box.y - at;
        const auto count = std::min<JDIMENSION>(kRows, left);
        for (JDIMENSION i = 0; i < count; ++i)
            lines[i] = straight && inside ? wanted.out + (at - box.y + i) * wanted.stride : rows + i * row_bytes;
        const auto got = jpeg_read_scanlines(&codec, lines, count);
        if (straight || !inside) continue;
        for (JDIMENSION i = 0; i < got; ++i) {
            auto* to = wanted.out + (at - box.y + i) * wanted.stride;
            if (read.ink())
                ink_to_rgb(lines[i] + begin, box.width, to, wanted.channels);
            else
                std::memcpy(to, lines[i] + begin, size);
        }
    }
    return true;
}

bool leave_out_columns(JpegRead& read, const Wanted& wanted, JDIMENSION& first) {
    if (setjmp(read.errors.jump)) return false;
    auto& codec = read.codec;
    const auto& box = wanted.box;
    // Upsampling looks at the sample on either side, so one more of the coarsest is decoded.
    const auto more = static_cast<JDIMENSION>(codec.max_h_samp_factor);
    first = box.x > more ? box.x - more : 0;
    JDIMENSION width = std::min(codec.output_width, box.x + box.width + more) - first;
    if (width < codec.output_width)
        jpeg_crop_scanline(&codec, &first, &width);
    else
        first = 0;
    return true;
}

// Decodes the box of a JPEG whose header has been read. `scratch` is for rows that are wider than the box.
void decode_box(JpegRead& read, Wanted& wanted, std::vector<std::uint8_t>& scratch) {
    if (!start(read, wanted)) read.fail();
    wanted.partial = wanted.partial && may_leave_out(read.codec);
    const auto& box = wanted.box;
    if (box.x + box.width > read.codec.output_width || box.y + box.height > read.codec.output_height)
        throw Failure("decode", "JPEG: differs from its stored shape");
    JDIMENSION first = 0;
    if (wanted.partial && !leave_out_columns(read, wanted, first)) read.fail();
    scratch.resize(std::max(scratch.size(), kRows * std::size_t{read.codec.output_width} * samples_of(read, wanted)));
    if (!read_box(read, wanted, first, scratch.data())) read.fail();
}

void decode_whole(Bytes jpeg, const ImageShape& shape, Wanted& wanted) {
    JpegRead read;
    if (read.open(jpeg) != shape) throw Failure("decode", "JPEG: differs from its stored shape");
    decode_box(read, wanted, workshop().rows);
}

// From `begin` to `end` along one axis, in units: MCUs across, groups of MCUs between anchors, rows.
struct Reach {
    std::uint32_t begin;
    std::uint32_t end;
};

// The units of `unit` pixels that hold pixels [at, at + size) and `more` on either side, out of `count`.
Reach reach(std::uint32_t at, std::uint32_t size, std::uint32_t more, std::uint32_t unit, std::uint32_t count) {
    return {(at > more ? at - more : 0) / unit, std::min(count, ceil_div(at + size + more, unit))};
}

// Rearranging the wanted bits costs about this share of decoding them.
constexpr double kSpliceCost = 0.12;

bool worth_it(const std::vector<JpegRun>& runs, BitPlace scan) {
    BitPlace bits = 0;
    for (const auto& run : runs) bits += run.end > run.begin ? run.end - run.begin : 0;
    return static_cast<double>(bits) * (1 + kSpliceCost) < static_cast<double>(runs.back().end - scan);
}

// Makes the small JPEG around a box of the image, shrunk or not, in the workshop, and says where in the image it lies.
// False where there is no index, or where it would save nothing.
bool splice_box(JpegFrame& frame, Bytes jpeg, Bytes index, const JpegBox& box, std::uint32_t shrink, bool always,
                JpegPart& part) {
    const JpegIndex anchors(index, frame, jpeg);
    if (!anchors.there()) return false;

    const auto block = 8 / shrink;
    const auto mcu_width = frame.max_h * block, mcu_height = frame.max_v * block;
    const auto more_x = frame.max_h > 1 ? frame.max_h : 0, more_y = frame.max_v > 1 ? frame.max_v : 0;
    const auto rows = reach(box.y, box.height, more_y, mcu_height, frame.mcu_rows);
    auto groups = reach(box.x, box.width, more_x, mcu_width * anchors.interval(), anchors.per_row());
    const auto left = [&] { return groups.begin * anchors.interval() * 8 * frame.max_h; };
    const auto right = [&] { return std::min(frame.width, groups.end * anchors.interval() * 8 * frame.max_h); };
    // libjpeg upsamples in another way where an image has less than three samples across.
    while (ceil_div(right() - left(), shrink) <= 2 * frame.max_h) {
        if (groups.begin > 0)
            --groups.begin;
        else if (groups.end < anchors.per_row())
            ++groups.end;
        else
            break;
    }

    auto& shop = workshop();
    anchors.runs(rows.begin, rows.end, groups.begin, groups.end, shop.runs);
    if (!always && !worth_it(shop.runs, BitPlace{frame.scan} * 8)) return false;
    part.left = left();
    part.top = rows.begin * 8 * frame.max_v;
    part.width = right() - left();
    part.height = std::min(frame.height, rows.end * 8 * frame.max_v) - part.top;
    if (!jpeg_splice(frame, jpeg, shop.runs, part.width, part.height, shop.small)) return false;
    part.data = shop.small.written();
    return true;
}

// False where this is no JPEG that parts can be cut out of.
bool read_frame(JpegFrame& frame, Bytes jpeg, const ImageShape& shape) {
    if (frame.parse(jpeg)) return false;
    if (ImageShape{frame.height, frame.width, frame.components, 8} != shape)
        throw Failure("decode", "JPEG: differs from its stored shape");
    check_claim(ImageKind::jpeg, shape, jpeg.size());
    return true;
}

bool decode_spliced(Bytes jpeg, Bytes index, const ImageShape& shape, Wanted& wanted, bool always) {
    JpegFrame frame;
    JpegPart part;
    if (!read_frame(frame, jpeg, shape) || !splice_box(frame, jpeg, index, wanted.box, wanted.shrink, always, part))
        return false;
    auto inside = wanted;
    inside.box.x -= part.left / wanted.shrink;
    inside.box.y -= part.top / wanted.shrink;
    auto& shop = workshop();
    if (!shop.spliced.read_header(part.data)) shop.spliced.fail();
    decode_box(shop.spliced, inside, shop.rows);
    return true;
}

// Whether the colours are YCbCr, for sure. A file without either marker is, unless its components are called R, G and B.
bool is_ycbcr(const JpegFrame& frame) {
    if (frame.components != 3) return false;
    if (!frame.adobe.empty()) return frame.adobe[11] == 1;
    return !frame.jfif.empty() || frame.component[0].id != 'R';
}

}  // namespace

JpegRoute jpeg_decode_box(Bytes jpeg, Bytes index, const JpegRequest& request, std::uint8_t* out, std::size_t stride) {
    const auto& box = request.box;
    const auto shrink = request.shrink;
    const auto channels = request.channels ? request.channels : request.shape.channels;
    if (shrink != 1 && shrink != 2 && shrink != 4 && shrink != 8)
        throw Failure("format", "a JPEG is shrunk by 1, 2, 4 or 8");
    if (request.shape.channels != 1 && request.shape.channels != 3)
        throw Failure("format", "a JPEG has one channel or three");
    if (channels != request.shape.channels && (channels != 4 || request.shape.channels != 3))
        throw Failure("format", "pixels have the image's channels, or four for three");
    const auto inside = [](std::uint32_t at, std::uint32_t size, std::uint64_t all) {
        return size && at < all && size <= all - at;
    };
    if (!inside(box.x, box.width, (std::uint64_t{request.shape.width} + shrink - 1) / shrink) ||
        !inside(box.y, box.height, (std::uint64_t{request.shape.height} + shrink - 1) / shrink))
        throw Failure("format", "the box lies outside the image");
    if (stride < std::size_t{box.width} * channels) throw Failure("format", "rows overlap");

    Wanted wanted{box, shrink, channels, true, out, stride};
    const auto splice = request.route == JpegRoute::splice;
    if (!index.empty() && (splice || request.route == JpegRoute::automatic) &&
        decode_spliced(jpeg, index, request.shape, wanted, splice))
        return JpegRoute::splice;
    wanted.partial = request.route != JpegRoute::full;
    decode_whole(jpeg, request.shape, wanted);
    return wanted.partial ? JpegRoute::partial : JpegRoute::full;
}

std::optional<JpegPart> jpeg_cut_box(Bytes jpeg, Bytes index, const ImageShape& shape, const JpegBox& box) {
    JpegFrame frame;
    if (!read_frame(frame, jpeg, shape) || !is_ycbcr(frame)) return std::nullopt;
    JpegPart part;
    if (!index.empty() && splice_box(frame, jpeg, index, box, 1, false, part)) {
        part.data = part.data.first(part.data.size() - kSpliceTail);
        return part;
    }
    return JpegPart{jpeg, 0, 0, frame.width, frame.height};
}

}  // namespace fl
