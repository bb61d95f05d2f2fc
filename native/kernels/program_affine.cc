#include "portable_math.h"
#include "program_steps.h"

namespace fl {
namespace {

using Kind = ProgramStep::Kind;

double cosine(double degrees) { return cos_pi(std::fmod(degrees, 360.0) / 180.0); }
double sine(double degrees) { return sin_pi(std::fmod(degrees, 360.0) / 180.0); }

// To 15 places, as Pillow does, so that quarter turns are exact.
double to_places(double x) { return std::nearbyint(x * 1e15) / 1e15; }

// Has the map of a matrix without an offset turn about (x, y), and move by (right, down) after it.
Matrix about(Matrix m, double x, double y, double right, double down) {
    m[2] = m[0] * (-x - right) + m[1] * (-y - down);
    m[5] = m[3] * (-x - right) + m[4] * (-y - down);
    m[2] += x;
    m[5] += y;
    return m;
}

void rotate(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const double degrees = draw_between(random, step.numbers[0], step.numbers[1]);
    told({degrees});
    move(image, rotation(degrees, image.height(), image.width()), step.filter, fill_of(step, 2));
}

// torchvision's inverse matrix: turned clockwise and sheared about the middle, scaled, then moved.
void affine_map(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto& n = step.numbers;
    const double width = image.width(), height = image.height();
    const double degrees = draw_between(random, n[0], n[1]);
    const double right = static_cast<double>(rounded(draw_between(random, -n[2] * width, n[2] * width))) + n[4];
    const double down = static_cast<double>(rounded(draw_between(random, -n[3] * height, n[3] * height))) + n[5];
    const double scale = draw_between(random, n[6], n[7]);
    const double shear_x = draw_between(random, n[8], n[9]), shear_y = draw_between(random, n[10], n[11]);
    const double slope = sine(shear_x) / cosine(shear_x), upright = cosine(shear_y);
    const double a = cosine(degrees - shear_y) / upright, b = -a * slope - sine(degrees);
    const double c = sine(degrees - shear_y) / upright, d = -c * slope + cosine(degrees);
    const Matrix m = about({d / scale, -b / scale, 0, -c / scale, a / scale, 0}, width * 0.5, height * 0.5, right, down);
    const auto map = reversed(m);
    told({map[0], map[1], map[2], map[3], map[4], map[5]});
    move(image, m, step.filter, fill_of(step, 12));
}

void check_filter(const ProgramStep& step) {
    require(step.filter == Filter::nearest || step.filter == Filter::bilinear, "a filter");
}

void check_rotate(const ProgramStep& step) {
    check_filter(step);
    check_range(step, 0, -1e6, 1e6, "degrees");
    check_fill(step, 2);
}

void check_affine(const ProgramStep& step) {
    const auto& n = step.numbers;
    check_filter(step);
    check_range(step, 0, -1e6, 1e6, "degrees");
    for (const std::size_t i : {2u, 3u}) require(n[i] >= 0 && n[i] <= 1, "a share");
    for (const std::size_t i : {4u, 5u}) require(std::abs(n[i]) <= kLongestSide, "pixels");
    check_range(step, 6, 1e-6, 1e6, "scale");
    for (const std::size_t i : {8u, 10u}) check_range(step, i, -89.9, 89.9, "shear");
    check_fill(step, 12);
}

}  // namespace

Matrix rotation(double degrees, std::uint32_t height, std::uint32_t width) {
    const double c = to_places(cosine(-degrees)), s = to_places(sine(-degrees));
    return about({c, s, 0, -s, c, 0}, width / 2.0, height / 2.0, 0, 0);
}

void move(ProgramImage& image, const Matrix& matrix, Filter filter, const Fill& fill) {
    const auto pixels = image.pixels();
    const Frame frame = image.frame();
    affine(frame, pixels, matrix, filter == Filter::bilinear, fill, frame, image.spare(frame), best_simd());
    image.accept(frame);
    image.moved(reversed(matrix));
}

StepRule affine_rule(Kind kind) {
    switch (kind) {
        case Kind::rotate: return {5, check_rotate, rotate, 1};
        case Kind::affine: return {15, check_affine, affine_map, 6};
        default: return {};
    }
}

}  // namespace fl
