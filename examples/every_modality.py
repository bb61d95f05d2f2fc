"""Image, sound, video, captions, boxes and a label in one dataset: written, verified, loaded, resumed, looked at.

Balls roll through ten places. All of it is made here, the same in every run; nothing is downloaded.

Run it: python examples/every_modality.py
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import fastloader as fl
from fastloader import ops

HEIGHT, WIDTH = 240, 320
FRAMES, RATE_OF_FRAMES = 50, 25
SOUND_RATE, SECONDS = 16_000, 3
BATCH = 8

PLACES = ("harbour", "meadow", "canyon", "orchard", "glacier", "market", "forest", "desert", "lagoon", "quarry")
COLOURS = {"red": (205, 45, 40), "yellow": (235, 200, 60), "blue": (40, 80, 190), "white": (240, 240, 235)}

FIELDS = {
    "image": fl.JPEGImageField(quality=90),
    "sound": fl.AudioCompressedField(encoding="flac", sample_rate=SOUND_RATE, channels=1),
    "video": fl.VideoCompressedField(),
    "captions": fl.ListField(fl.TextField()),
    "boxes": fl.BoxesField(),
    "label": fl.IntField(),
}

PIPELINES = {
    "image": [ops.RandomResizedCrop(128, scale=(0.4, 1.0)), ops.HorizontalFlip()],
    "boxes": [ops.Follow("image", returns="boxes_seen")],
    "sound": [ops.RandomSegment(1.0), ops.MelSpectrogram(n_mels=80)],
    "video": [ops.ClipSampler(8, stride=3), ops.RandomResizedCrop(96, scale=(0.5, 1.0)), ops.HorizontalFlip()],
    "captions": [ops.Choose()],
}


def landscape(rng):
    """Light falling from above, clouds and colours with the 1/f spectrum of photographs."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :])
    amplitude = np.maximum(frequency, 1 / WIDTH) ** -1.3

    def clouds(strength):
        noise = np.fft.irfft2(amplitude * np.exp(2j * np.pi * rng.random(amplitude.shape)), (HEIGHT, WIDTH))
        return noise * (strength / noise.std())

    light = np.linspace(rng.uniform(140, 200), rng.uniform(50, 110), HEIGHT)[:, None] + clouds(34)
    return np.stack([light + clouds(7) + rng.uniform(-30, 30) for _ in range(3)], axis=2).clip(0, 255)


def draw(place, balls):
    """The place with balls in it, each an (x, y, radius, colour)."""
    picture = place.copy()
    for x, y, radius, colour in balls:
        top, left = max(int(y - radius), 0), max(int(x - radius), 0)
        spot = picture[top : int(y + radius) + 2, left : max(int(x + radius) + 2, 0)]
        rows, columns = np.ogrid[: spot.shape[0], : spot.shape[1]]
        down, right = (rows + top + 0.5 - y) / radius, (columns + left + 0.5 - x) / radius
        cover = np.clip((1 - np.hypot(down, right)) * radius, 0, 1)[:, :, None]
        light = np.clip(1.1 - 0.5 * np.hypot(down + 0.4, right + 0.4), 0.3, 1)[:, :, None]
        spot += cover * (np.array(COLOURS[colour]) * light - spot)
    return picture.astype(np.uint8)


def chord(rng):
    """Three plucked strings in a quiet room."""
    seconds = np.arange(SECONDS * SOUND_RATE) / SOUND_RATE
    pitches = 110 * 2 ** (rng.choice(36, 3, replace=False) / 12)
    strings = sum(np.sin(2 * np.pi * hz * seconds) * np.exp(-hz / 300 * seconds) for hz in pitches)
    return (strings / 4 + rng.normal(0, 0.002, len(seconds))).astype(np.float32)


def mp4(frames):
    """The bytes of an H.264 file, with a key frame every twelve frames."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        # One thread: x264 makes other bytes with other numbers of them.
        options = {"preset": "veryfast", "crf": "23", "g": "12", "threads": "1"}
        stream = container.add_stream("libx264", rate=RATE_OF_FRAMES, options=options)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def sample(number, places):
    """One to three balls in a place: how they lie, how they roll, how it sounds, what to say about it."""
    rng = np.random.default_rng([2, number])
    label = number % len(PLACES)
    count = 1 + number % 3
    colours = rng.choice(list(COLOURS), count, replace=False).tolist()
    balls = [(rng.uniform(45, WIDTH - 45), rng.uniform(45, HEIGHT - 45), rng.uniform(18, 40), c) for c in colours]
    speeds = rng.uniform(-1.5, 1.5, count)

    def rolled(step):
        """The balls some frames later, in a video of half the size."""
        return [((x + step * v) / 2, y / 2, r / 2, c) for (x, y, r, c), v in zip(balls, speeds, strict=True)]

    things = " and ".join(f"a {colour} ball" for colour in colours)
    captions = [f"{things} in the {PLACES[label]}", f"the {PLACES[label]}, {count} ball{'s' * (count > 1)}"]
    return {
        "image": draw(places[label], balls),
        "sound": (chord(rng), SOUND_RATE),
        "video": mp4([draw(places[label][::2, ::2], rolled(step)) for step in range(FRAMES)]),
        "captions": [*captions, f"photograph {number}"][: 1 + number % 3],
        "boxes": np.array([[x - r, y - r, x + r, y + r] for x, y, r, _ in balls], np.float32),
        "label": label,
    }


def write(path, count):
    rng = np.random.default_rng(1)
    places = [landscape(rng) for _ in PLACES]
    with fl.DatasetWriter(path, FIELDS) as writer:
        for number in range(count):
            writer.write_sample(sample(number, places))


def load(path, **options):
    return fl.DataLoader(fl.open(path), BATCH, shuffle=True, seed=7, pipelines=PIPELINES, pad="longest", **options)


def digest(batch):
    """A hash of everything in a batch."""
    sha = hashlib.sha256()
    for name, value in sorted(batch.items()):
        data = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()
        sha.update(f"{name} {len(data)} ".encode() + data)
    return sha.hexdigest()


def describe(batch):
    width = max(map(len, batch))
    for name, value in batch.items():
        shown = (
            f"{value.dtype}{list(value.shape)}"
            if isinstance(value, np.ndarray)
            else f"{len(value)} texts, as {value[0]!r}"
        )
        print(f"  {name:<{width}}  {shown}")


def resume_in_the_middle(path):
    """A run that goes through, and one that stops, saves its state and is taken up by a new loader."""
    through = [digest(batch) for batch in load(path)]
    half = len(through) // 2

    first = load(path)
    batches = iter(first)
    begun = [digest(next(batches)) for _ in range(half)]
    saved = json.dumps(first.state_dict())
    batches.close()

    second = load(path, num_workers=1)
    second.load_state_dict(json.loads(saved))
    rest = [digest(batch) for batch in second]
    if begun + rest != through:
        raise SystemExit("the resumed run differs from the one that went through")
    print(f"stopped after batch {half} of {len(through)}; the state is {len(saved)} bytes of JSON")
    for number, (one, other) in enumerate(zip(through[half:], rest, strict=True), half + 1):
        print(f"  batch {number}  {one[:16]} in one go, {other[:16]} resumed")
    print(f"  the {len(rest)} batches that were left are identical, also with another number of threads")


def command(*arguments, folder):
    """Runs ``fastloader`` as in a terminal."""
    print(f"\n$ fastloader {' '.join(arguments)}", flush=True)
    line = [sys.executable, "-m", "fastloader", *arguments]
    done = subprocess.run(line, cwd=folder, text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


def main(path, count):
    began = time.perf_counter()
    write(path, count)
    print(
        f"Made {count} samples and wrote them to {path.name}, {path.stat().st_size / 1e6:.1f} MB, in "
        f"{time.perf_counter() - began:.1f} s:\n"
        f"  a {WIDTH}x{HEIGHT} photo-like JPEG, {SECONDS} s of sound as FLAC, {FRAMES / RATE_OF_FRAMES:.0f} s of video "
        "as H.264,\n  one to three captions, as many boxes, a label"
    )
    command("verify", path.name, folder=path.parent)

    loader = load(path)
    batch = next(iter(loader))
    print(f"\nOne of {len(loader)} shuffled batches, cropped, flipped and cut at random, boxes along with their image:")
    describe(batch)

    print("\nResuming: ", end="")
    resume_in_the_middle(path)

    command("info", path.name, folder=path.parent)
    command("ls", path.name, "--limit", "3", folder=path.parent)
    command("cat", path.name, "2", folder=path.parent)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64, help="how many (default: 64)")
    parser.add_argument("--output", type=Path, help="where to keep the dataset (default: a temporary folder)")
    arguments = parser.parse_args()
    if arguments.samples < 2 * BATCH:
        parser.error(f"--samples {arguments.samples}: at least {2 * BATCH}, two batches, so that there is a middle")
    if missing := ", ".join(name for name in ("soundfile", "soxr", "av") if find_spec(name) is None):
        raise SystemExit(f'not installed: {missing}; pip install "fastloader[audio,video]" brings what is missing')
    if arguments.output is not None:
        main(arguments.output, arguments.samples)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "every.fld", arguments.samples)
