"""What the operations on sounds do, in numpy, one after the other over whole arrays (frames, channels)."""

import math

import numpy as np

from fastloader import ops


def length(op, rate):
    return op.frames if op.frames is not None else math.floor(op.seconds * rate + 0.5)


def random_segment(op, sound, rate, random):
    wanted = length(op, rate)
    if len(sound) >= wanted:
        start = int(random.below(len(sound) - wanted + 1))
        return sound[start : start + wanted], rate
    assert op.pad
    return np.pad(sound, ((0, wanted - len(sound)), (0, 0))), rate


def pad_or_trim(op, sound, rate, random):
    wanted = length(op, rate)
    spare = abs(len(sound) - wanted)
    before = {"start": 0, "center": spare // 2, "end": spare}[op.align]
    if len(sound) >= wanted:
        return sound[before : before + wanted], rate
    return np.pad(sound, ((before, spare - before), (0, 0)), constant_values=op.value), rate


def resample(op, sound, rate, random):
    """Each output sample is a sum over its neighbours, weighted by a sinc under a Kaiser window."""
    if rate == op.rate:
        return sound, rate
    scale = 0.96 * min(1.0, op.rate / rate)
    reach = 64 / scale
    out = np.zeros((-(-len(sound) * op.rate // rate), sound.shape[1]))
    for i in range(len(out)):
        place = i * rate / op.rate
        near = np.arange(max(0, math.ceil(place - reach)), min(len(sound), math.floor(place + reach) + 1))
        every = np.arange(math.ceil(place - reach), math.floor(place + reach) + 1)

        def weights(at, place=place):
            x = at - place
            window = np.i0(12.0 * np.sqrt(np.clip(1 - (x / reach) ** 2, 0, None))) / np.i0(12.0)
            return np.sinc(x * scale) * window

        out[i] = weights(near) @ sound[near] / weights(every).sum()
    return out.astype(np.float32), op.rate


def mono(op, sound, rate, random):
    total = np.zeros(len(sound), np.float32)
    for channel in sound.T:
        total += channel
    return (total / np.float32(sound.shape[1]))[:, None], rate


def gain(op, sound, rate, random):
    if not random.uniform() < op.p:
        return sound, rate
    db = op.db[0] + (op.db[1] - op.db[0]) * random.uniform()
    return sound * np.float32(10 ** (db / 20)), rate


def add_noise(op, sound, rate, random):
    if not random.uniform() < op.p:
        return sound, rate
    snr = op.snr[0] + (op.snr[1] - op.snr[0]) * random.uniform()
    power = np.square(sound, dtype=np.float64).mean()
    if not power:
        return sound, rate
    size = math.sqrt(power * 10 ** (-snr / 10))
    noise = []
    while len(noise) < sound.size:
        radius = math.sqrt(-2 * math.log(1 - random.uniform()))
        turn = 2 * math.pi * random.uniform()
        noise += [size * radius * math.cos(turn), size * radius * math.sin(turn)]
    return sound + np.float32(noise[: sound.size]).reshape(sound.shape), rate


def time_shift(op, sound, rate, random):
    if not random.uniform() < op.p:
        return sound, rate
    most = length(op, rate)
    by = int(random.below(2 * most + 1)) - most
    if op.wrap:
        return np.roll(sound, by, axis=0), rate
    out = np.zeros_like(sound)
    if abs(by) < len(sound):
        if by >= 0:
            out[by:] = sound[: len(sound) - by]
        else:
            out[:by] = sound[-by:]
    return out, rate


def spec_augment(op, values, rate, random):
    values = values.copy()
    frames, bands = values.shape
    fill = values.mean(dtype=np.float64) if op.fill == "mean" else op.fill
    for masks, widest, size, axis in (
        (op.time_masks, min(op.time_width, math.floor(op.time_share * frames)), frames, 0),
        (op.band_masks, op.band_width, bands, 1),
    ):
        for _ in range(masks):
            width = int(random.below(min(widest, size) + 1))
            start = int(random.below(size - width + 1))
            index = (slice(start, start + width), slice(None))
            values[index if axis == 0 else index[::-1]] = fill
    return values, rate


def mel_spectrogram(op, sound, rate, random):
    return op.spectrogram(np.ascontiguousarray(sound[:, 0]), rate), 0


SLOW = {
    ops.RandomSegment: random_segment,
    ops.PadOrTrim: pad_or_trim,
    ops.Resample: resample,
    ops.Mono: mono,
    ops.Gain: gain,
    ops.AddNoise: add_noise,
    ops.TimeShift: time_shift,
    ops.SpecAugment: spec_augment,
    ops.MelSpectrogram: mel_spectrogram,
}


def run(pipeline, sound, rate, place):
    """The result for a sound (frames, channels) of floats; ``place`` is seed, epoch and sample."""
    for number, op in enumerate(pipeline):
        sound, rate = SLOW[type(op)](op, sound, rate, ops.Random(*place, number))
    return sound
