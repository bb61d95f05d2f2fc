"""What each operation is held against: a function of the op, its draws and Pillow's image that gives Pillow's image."""

import math

import numpy as np
from draws import Draws
from PIL import Image, ImageEnhance, ImageOps

from fastloader import kernels, ops

NEAREST, BILINEAR = Image.Resampling.NEAREST, Image.Resampling.BILINEAR


def sides(image):
    return image.height, image.width


def colour_of(image, fill):
    three = fill if isinstance(fill, tuple) else (fill, fill, fill)
    return three if image.mode == "RGB" else three[0]


def with_hue(image, turns):
    """Torchvision's adjust_hue of a PIL image."""
    hue, saturation, value = image.convert("HSV").split()
    turned = Image.fromarray(np.asarray(hue) + np.uint8(int(turns * 255) % 256))
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def enhanced(way):
    return lambda op, draws, image: way(image).enhance(draws.between(*op.amount)) if draws.happens(op.p) else image


def jittered(op, draws, image):
    """Torchvision's ColorJitter.forward."""
    if not draws.happens(op.p):
        return image
    order = [0, 1, 2, 3]
    for i in (3, 2, 1):
        j = draws.below(i + 1)
        order[i], order[j] = order[j], order[i]
    ranges = (op.brightness, op.contrast, op.saturation, op.hue)
    factors = [draws.between(*one) for one in ranges]
    ways = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for i in order:
        if i == 3:
            image = with_hue(image, factors[3]) if op.hue != (0, 0) else image
        elif ranges[i] != (1, 1):
            image = ways[i](image).enhance(factors[i])
    return image


def by_chance(change):
    return lambda op, draws, image: change(op, draws, image) if draws.happens(op.p) else image


def blurred(op, draws, image):
    """The kernel, which is held against torchvision's formula elsewhere."""
    sigma = draws.between(*op.sigma)
    pixels = np.asarray(image)
    out = np.empty_like(pixels)
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    kernels.gaussian_blur(pixels.copy(), shape, op.kernel_size[::-1], (sigma, sigma), out)
    return Image.fromarray(out)


def rotated(image, degrees, op):
    way = NEAREST if op.filter == "nearest" else BILINEAR
    return image.rotate(degrees, way, fillcolor=colour_of(image, op.fill))


def mapped(image, matrix, op):
    way = NEAREST if op.filter == "nearest" else BILINEAR
    return image.transform(image.size, Image.Transform.AFFINE, matrix, way, fillcolor=colour_of(image, op.fill))


def inverse_matrix(middle, angle, translate, scale, shear):
    """Torchvision's _get_inverse_affine_matrix."""
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    m = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    (cx, cy), (tx, ty) = middle, translate
    m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty) + cx
    m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty) + cy
    return m


def affine(op, draws, image):
    """Torchvision's RandomAffine.get_params, and its affine of a PIL image; shears are always two ranges."""
    angle = draws.between(*op.degrees)
    across, down = op.translate[0] * image.width, op.translate[1] * image.height
    moved = round(draws.between(-across, across)), round(draws.between(-down, down))
    scale = draws.between(*op.scale)
    shear = draws.between(*op.shear[:2]), draws.between(*op.shear[2:])
    middle = (image.width * 0.5, image.height * 0.5)
    return mapped(image, inverse_matrix(middle, angle, moved, scale, shear), op)


def affine_fixed(op, draws, image):
    middle = (image.width * 0.5, image.height * 0.5)
    return mapped(image, inverse_matrix(middle, op.degrees, op.translate, op.scale, op.shear), op)


def pasted(image, left, top, height, width, fill):
    wanted = Image.new(image.mode, (width, height), colour_of(image, fill))
    wanted.paste(image, (left, top))
    return wanted


def translated(op, draws, image):
    down, right = (draws.below(2 * op.padding + 1) - op.padding for _ in range(2))
    return pasted(image, right, down, image.height, image.width, op.fill)


def padded(op, draws, image):
    left, top, right, bottom = op.padding
    if op.mode == "constant":
        return pasted(image, left, top, image.height + top + bottom, image.width + left + right, op.fill)
    pixels = np.asarray(image)
    around = ((top, bottom), (left, right), (0, 0))[: pixels.ndim]
    return Image.fromarray(np.pad(pixels, around, mode=op.mode))


def drawn_erasure(draws, height, width, scale, ratio):
    """Torchvision's RandomErasing.get_params: top, left, height, width."""
    for _ in range(10):
        area = height * width * draws.between(*scale)
        shape = math.exp(draws.between(math.log(ratio[0]), math.log(ratio[1])))
        h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if h < height and w < width:
            return draws.below(height - h + 1), draws.below(width - w + 1), h, w
    return None


def erased(op, draws, image):
    box = drawn_erasure(draws, *sides(image), op.scale, op.ratio)
    if box is None:
        return image
    top, left, h, w = box
    pixels = np.array(image)
    if op.value == "random":
        channels = 1 if pixels.ndim == 2 else 3
        noise = draws.rest((h, w * channels))
        pixels[top : top + h, left : left + w] = noise.reshape((h, w, channels)[: pixels.ndim])
    else:
        pixels[top : top + h, left : left + w] = colour_of(image, op.value)
    return Image.fromarray(pixels)


def cut_out(op, draws, image):
    h, w = op.size
    top, left = draws.below(image.height - h + 1), draws.below(image.width - w + 1)
    pixels = np.array(image)
    pixels[top : top + h, left : left + w] = colour_of(image, op.fill)
    return Image.fromarray(pixels)


SIGNED = {
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
}  # fmt: skip
RAND_SPACE = {"shear": 0.3, "degrees": 30.0, "factor": 0.9, "bits": 4}
TRIVIAL_SPACE = {"shear": 0.99, "degrees": 135.0, "factor": 0.99, "bits": 6}


def space(bins, most, across, down):
    """Torchvision's _augmentation_space: the magnitudes of each operation, in its order."""

    def up_to(end):
        return [end * (k / (bins - 1)) for k in range(bins)]

    return {
        "Identity": None, "ShearX": up_to(most["shear"]), "ShearY": up_to(most["shear"]), "TranslateX": up_to(across),
        "TranslateY": up_to(down), "Rotate": up_to(most["degrees"]), "Brightness": up_to(most["factor"]),
        "Color": up_to(most["factor"]), "Contrast": up_to(most["factor"]), "Sharpness": up_to(most["factor"]),
        "Posterize": [8 - round(k / ((bins - 1) / most["bits"])) for k in range(bins)],
        "Solarize": [255.0 - x for x in up_to(255.0)], "AutoContrast": None, "Equalize": None,
    }  # fmt: skip


def augmented(op, image, name, amount):
    """Torchvision's _apply_op of a PIL image."""
    if name in ("ShearX", "ShearY"):
        angle = math.degrees(math.atan(amount))
        shear = (angle, 0.0) if name == "ShearX" else (0.0, angle)
        return mapped(image, inverse_matrix((0, 0), 0.0, (0, 0), 1.0, shear), op)
    if name in ("TranslateX", "TranslateY"):
        moved = (int(amount), 0) if name == "TranslateX" else (0, int(amount))
        return mapped(image, inverse_matrix((image.width * 0.5, image.height * 0.5), 0.0, moved, 1.0, (0, 0)), op)
    if name == "Rotate":
        return rotated(image, amount, op)
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return getattr(ImageEnhance, name)(image).enhance(1 + amount)
    change = {
        "Identity": lambda: image, "Posterize": lambda: ImageOps.posterize(image, int(amount)),
        "Solarize": lambda: ImageOps.solarize(image, amount), "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
    }  # fmt: skip
    return change[name]()


def rand_augmented(op, draws, image):
    """Torchvision's RandAugment.forward."""
    table = space(op.num_magnitude_bins, RAND_SPACE, 150 / 331 * image.width, 150 / 331 * image.height)
    for _ in range(op.num_ops):
        name = list(table)[draws.below(len(table))]
        amount = 0.0 if table[name] is None else table[name][op.magnitude]
        if name in SIGNED and draws.below(2):
            amount = -amount
        image = augmented(op, image, name, amount)
    return image


def trivially_augmented(op, draws, image):
    """Torchvision's TrivialAugmentWide.forward."""
    table = space(op.num_magnitude_bins, TRIVIAL_SPACE, 32.0, 32.0)
    name = list(table)[draws.below(len(table))]
    amount = 0.0 if table[name] is None else table[name][draws.below(op.num_magnitude_bins)]
    if name in SIGNED and draws.below(2):
        amount = -amount
    return augmented(op, image, name, amount)


def center_cropped(op, draws, image):
    h, w = op.size
    top, left = round((image.height - h) / 2), round((image.width - w) / 2)
    return image.crop((left, top, left + w, top + h))


def randomly_cropped(op, draws, image):
    h, w = op.size
    top = draws.below(image.height + 2 * op.padding - h + 1) - op.padding
    left = draws.below(image.width + 2 * op.padding - w + 1) - op.padding
    return pasted(image, -left, -top, h, w, op.fill)


def resized(op, draws, image):
    """Across first, then down."""
    h, w = op.size
    return image.resize((w, image.height), BILINEAR).resize((w, h), BILINEAR)


REFERENCES = {
    ops.ColorJitter: jittered,
    ops.RandomBrightness: enhanced(ImageEnhance.Brightness),
    ops.RandomContrast: enhanced(ImageEnhance.Contrast),
    ops.RandomSaturation: enhanced(ImageEnhance.Color),
    ops.RandomHue: by_chance(lambda op, draws, image: with_hue(image, draws.between(*op.amount))),
    ops.Grayscale: lambda op, draws, image: image.convert("L").convert("L" if op.channels == 1 else "RGB"),
    ops.RandomGrayscale: by_chance(lambda op, draws, image: image.convert("L").convert("RGB")),
    ops.GaussianBlur: by_chance(blurred),
    ops.Sharpness: by_chance(
        lambda op, draws, image: ImageEnhance.Sharpness(image).enhance(
            draws.between(*(op.factor if isinstance(op.factor, tuple) else (op.factor, op.factor)))
        )
    ),
    ops.Solarize: by_chance(lambda op, draws, image: ImageOps.solarize(image, op.threshold)),
    ops.Posterize: by_chance(lambda op, draws, image: ImageOps.posterize(image, op.bits)),
    ops.Equalize: by_chance(lambda op, draws, image: ImageOps.equalize(image)),
    ops.AutoContrast: by_chance(lambda op, draws, image: ImageOps.autocontrast(image)),
    ops.Invert: by_chance(lambda op, draws, image: ImageOps.invert(image)),
    ops.Rotate: lambda op, draws, image: rotated(image, op.degrees, op),
    ops.RandomRotation: lambda op, draws, image: rotated(image, draws.between(*op.degrees), op),
    ops.Affine: affine_fixed,
    ops.RandomAffine: affine,
    ops.RandomTranslate: translated,
    ops.Pad: padded,
    ops.RandomErasing: by_chance(erased),
    ops.Cutout: cut_out,
    ops.RandAugment: rand_augmented,
    ops.TrivialAugment: trivially_augmented,
    ops.HorizontalFlip: by_chance(lambda op, draws, image: ImageOps.mirror(image)),
    ops.VerticalFlip: by_chance(lambda op, draws, image: ImageOps.flip(image)),
    ops.CenterCrop: center_cropped,
    ops.RandomCrop: randomly_cropped,
    ops.Resize: resized,
}


def wanted(pipeline, sample, image, seed):
    """Pillow's image after the whole pipeline, as (H, W, C)."""
    image = Image.fromarray(image)
    for number, op in enumerate(pipeline):
        image = REFERENCES[type(op)](op, Draws(seed, 0, sample, number), image)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]
