"""What the server answers: values, pictures, sounds, plots, files, checks."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import soundfile
from stores.http_server import web_server
from tokenizing import byte_pair
from videos import video
from viewed import RATE, Served, where
from viewed import sample as made

import fastloader as fl
from fastloader.errors import FormatError
from fastloader.formats.entries import Entry
from fastloader.stores import MemoryStore
from fastloader.viewer import open_samples
from fastloader.viewer.media import sniff

NOTHING = 12
"""The number of the sample that has only a label."""


def number_of(served: Served, name: str) -> int:
    return next(shown.number for shown in served.samples.shown if shown.name == name)


def told(served: Served, index: int) -> dict[str, dict[str, Any]]:
    fields = served.ask(f"sample/{index}")["fields"]
    return {shown.name: fields[str(shown.number)] for shown in served.samples.shown}


def picture(served: Served, index: int, name: str, **params: Any) -> PIL.Image.Image:
    path = f"/api/picture/{index}/{number_of(served, name)}?" + "&".join(f"{k}={v}" for k, v in params.items())
    answer = served.get(path)
    assert answer.status == 200, answer.body
    return PIL.Image.open(io.BytesIO(answer.body))


def test_a_dataset_is_told_with_fields_and_columns(every: Served) -> None:
    about = every.ask("dataset")
    assert (about["title"], about["total"], about["keys"], about["format"]) == ("every.fld", 13, True, "fld")
    kinds = {field["name"]: field["kind"] for field in about["fields"]}
    assert kinds == {
        "image": "image", "alpha": "image", "raw": "image", "mask": "mask", "sound": "sound", "wave": "sound",
        "mel": "spectrogram", "codes": "array", "video": "video", "clip": "frames", "flow": "flow", "text": "text",
        "tokens": "tokens", "packed": "packed", "tree": "json", "names": "value", "both": "value",
        "embedding": "array", "array": "array", "boxes": "boxes", "points": "points", "blob": "bytes",
        "label": "number", "score": "number",
    }  # fmt: skip
    labels = {column["label"] for column in about["columns"]}
    assert {"label", "score", "image: width", "sound: seconds", "tokens: tokens", "text", "blob: bytes"} <= labels


def test_every_value_is_told(every: Served) -> None:
    known, values = made(2), told(every, 2)
    assert {name: value["kind"] for name, value in values.items() if value["kind"] == "error"} == {}
    assert values["label"]["text"] == "2"
    assert values["score"]["value"] == pytest.approx(2 / 3)
    assert values["text"] == values["text"] | {"text": known["text"], "length": len(known["text"]), "more": 0}
    assert values["tree"]["value"] == known["tree"]
    assert values["names"]["value"] == ["disc", "disc"]
    assert values["both"]["value"] == {"a": 2, "b": known["text"]}
    assert (values["image"]["height"], values["image"]["width"]) == (64, 96)
    assert (values["sound"]["seconds"], values["sound"]["codec"]) == (0.5, "flac")
    assert (values["video"]["frames"], values["video"]["type"]) == (40, "video/mp4")
    assert values["clip"]["frames"] == 10
    assert "".join(values["tokens"]["pieces"]) == values["tokens"]["text"] == known["tokens"]
    assert (values["packed"]["tokens"], values["packed"]["starts"]) == ([5, 6, 7, 8, 9], [0, 3])
    assert np.allclose(values["boxes"]["boxes"], known["boxes"])
    assert values["points"]["points"] == known["points"].tolist()
    assert values["blob"]["hex"] == known["blob"].hex(" ")
    assert values["embedding"]["shape"] == [96]
    place = values["image"]["place"]
    stored = Path(place["file"]).read_bytes()[place["offset"] : place["offset"] + place["stored"]]
    assert stored.startswith(b"\xff\xd8\xff")


def test_cards_say_less_of_the_same(every: Served) -> None:
    cards = every.ask("cards", start=1, count=3)["cards"]
    assert [(card["index"], card["key"]) for card in cards] == [(i, f"things/disc_{i:03d}") for i in (1, 2, 3)]
    assert cards[0]["fields"][str(number_of(every, "tree"))]["text"].startswith('{"id": 1')
    assert every.ask("cards", start=12, count=50)["cards"][0]["fields"]["0"] == {"kind": "missing"}
    assert every.ask("cards", start=13, count=50)["cards"] == []


@pytest.mark.parametrize("name", ["image", "alpha", "raw", "mask", "video", "clip", "flow"])
@pytest.mark.parametrize(("room", "crop"), [((32, 32), 1), ((32, 40), 0), ((500, 500), 1)])
def test_pictures_fit_their_room(every: Served, name: str, room: tuple[int, int], crop: int) -> None:
    image = picture(every, 3, name, height=room[0], width=room[1], crop=crop)
    own = picture(every, 3, name)
    assert image.width <= min(room[1], own.width)
    assert image.height <= min(room[0], own.height)
    if crop and min(room) <= 32 and name != "raw":
        assert image.size == (32, 32)
    if not crop:
        assert image.width / image.height == pytest.approx(own.width / own.height, rel=0.08)


@pytest.mark.parametrize("crop", [0, 1])
def test_a_thumbnail_is_what_pillow_would_make_of_the_whole_image(every: Served, crop: int) -> None:
    with fl.open(every.samples.path) as reader:
        whole = PIL.Image.fromarray(reader.read_sample(4, ["image"])["image"])
    mine = np.asarray(picture(every, 4, "image", height=32, width=32, crop=crop), np.float64)
    size = (48, 32) if crop else (32, 21)
    theirs = whole.resize(size, PIL.Image.Resampling.BILINEAR)
    if crop:
        theirs = theirs.crop((8, 0, 40, 32))
    assert mine.shape == np.asarray(theirs).shape
    assert np.abs(mine - np.asarray(theirs)).mean() < 6  # of which most is that it was encoded once more


def test_a_mask_lies_over_its_image_transparent_where_there_is_nothing(every: Served) -> None:
    over = np.asarray(picture(every, 1, "mask", overlay=1))
    mask = made(1)["mask"]
    assert ((over[:, :, 3] > 0) == (mask > 0)).all()
    assert len({tuple(pixel) for pixel in over[mask > 0]}) == 1


def test_a_strip_has_frames_side_by_side(every: Served) -> None:
    for name, width in (("clip", 96), ("video", 80)):
        answer = every.get(f"/api/strip/0/{number_of(every, name)}?frames=5&height=64&width=200")
        assert PIL.Image.open(io.BytesIO(answer.body)).size == (5 * width, 64)


def test_peaks_are_those_of_the_sound(every: Served) -> None:
    sound = made(1)["sound"][0]
    for name in ("sound", "wave"):
        peaks = every.ask(f"peaks/1/{number_of(every, name)}", count=40)
        parts = np.array_split(sound, 40)
        assert (len(peaks["low"]), peaks["seconds"], peaks["sampled"]) == (40, 0.5, False)
        assert np.allclose(peaks["high"], [100 * part.max() for part in parts], atol=1)
        assert np.allclose(peaks["low"], [100 * part.min() for part in parts], atol=1)


def test_long_sounds_are_looked_at_in_places(every: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastloader.viewer.sounds.WHOLE", 1000)
    peaks = every.ask(f"peaks/1/{number_of(every, 'sound')}", count=7)
    assert peaks["sampled"]
    assert max(peaks["high"]) > 50


def test_sounds_are_files_that_others_read(every: Served) -> None:
    sound = made(1)["sound"][0]
    for name, kind in (("sound", "audio/flac"), ("wave", "audio/wav")):
        answer = every.get(f"/api/file/1/{number_of(every, name)}")
        assert answer.headers["content-type"] == kind
        read, rate = soundfile.read(io.BytesIO(answer.body), dtype="float32")
        assert rate == RATE
        assert np.abs(read - sound).max() < 1e-4


def test_stored_bytes_come_as_they_are_whole_or_in_part(every: Served) -> None:
    with fl.open(every.samples.path) as reader:
        stored = bytes(reader.read_payload(0, "video"))
    path = f"/api/file/0/{number_of(every, 'video')}"
    answer = every.get(path)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, stored, "video/mp4")
    size = len(stored)
    for asked, begin, end in (("0-", 0, size), ("5-9", 5, 10), ("-7", size - 7, size), (f"9-{2 * size}", 9, size)):
        answer = every.get(path, {"range": f"bytes={asked}"})
        assert (answer.status, answer.body) == (206, stored[begin:end])
        assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
    for asked in (f"{size}-", "9-3", "-"):
        answer = every.get(path, {"range": f"bytes={asked}"})
        assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{size}")
    assert every.get(path, {"range": "bytes=0-1,4-5"}).body == stored
    assert every.get(path, method="HEAD").headers["content-length"] == str(size)


def test_plots_hold_what_the_array_holds(every: Served) -> None:
    known = made(5)
    line = every.ask(f"plot/5/{number_of(every, 'embedding')}")
    assert line["form"] == "line"
    assert np.allclose(line["high"], known["embedding"], rtol=1e-3, atol=1e-4)
    mapped = every.ask(f"plot/5/{number_of(every, 'array')}")
    assert (mapped["form"], mapped["rows"], mapped["columns"]) == ("map", 17, 20)
    pixels = np.frombuffer(base64.b64decode(mapped["data"]), np.uint8).reshape(17, 20)
    array = known["array"]
    assert np.allclose(pixels / 255, (array - array.min()) / np.ptp(array), atol=0.01)
    mel = every.ask(f"plot/5/{number_of(every, 'mel')}")
    assert mel["rows"] == 40  # bands upwards, time to the right


def test_plots_of_large_and_odd_arrays_are_small(tmp_path: Path) -> None:
    arrays = [
        np.arange(10_000, dtype=np.float32), np.full((3, 700, 900), np.nan, np.float32),
        np.full((3, 4), np.inf, np.float32), np.array(3, np.float32), np.zeros((0, 3), np.float32),
    ]  # fmt: skip
    arrays[1][0, 5, 7] = 2
    with fl.DatasetWriter(tmp_path / "x.fld", {"array": fl.NDArrayField("float32")}) as writer:
        for array in arrays:
            writer.write_sample({"array": array})
    with Served(tmp_path / "x.fld") as served:
        line = served.ask("plot/0/0")
        assert (len(line["low"]), line["low"][0], line["high"][-1]) == (512, 0, 9999)
        mapped = served.ask("plot/1/0")
        assert (mapped["rows"], mapped["columns"], mapped["slices"], mapped["unknown"]) == (256, 256, 1, 700 * 900 - 1)
        assert served.ask("plot/2/0")["form"] == "none"
        assert served.ask("plot/3/0")["form"] == "bars"
        assert served.get("/api/plot/4/0").status == 422


def test_what_is_missing_or_out_of_range_is_said(every: Served) -> None:
    assert every.get(f"/api/picture/{NOTHING}/0").status == 404
    assert {value["kind"] for name, value in told(every, NOTHING).items() if name != "label"} == {"missing"}
    for path in ("sample/13", "picture/99/0", "picture/0/99", "check/13", "variants/0"):
        answer = every.get(f"/api/{path}")
        assert answer.status in (400, 404)
        assert json.loads(answer.body)["error"]
    for path in ("sample/x", "cards?start=0&count=100000", "cards?start=-1&count=2", "picture/0/0?height=x&width=1"):
        assert every.get(f"/api/{path}").status == 400
    assert every.get("/static/../server.py").status == 404
    assert every.get("/static/nothing.js").status == 404
    assert every.get("/api/nothing").status == 404


def test_a_sample_is_compared_with_its_checksums(tmp_path: Path, every_path: Path) -> None:
    with Served(every_path) as served:
        states = {one["field"]: one["state"] for one in served.ask("check/1")}
        assert set(states.values()) == {"good"}
        place = told(served, 1)["text"]["place"]
        broken = number_of(served, "text")
    data = bytearray(every_path.read_bytes())
    data[place["offset"]] ^= 1
    (tmp_path / "broken.fld").write_bytes(data)
    with Served(tmp_path / "broken.fld") as served:
        found = served.ask("check/1")
        assert [one["field"] for one in found if one["state"] != "good"] == [broken]
        assert "crc32c stored" in found[broken]["text"]
        values = told(served, 1)
        assert values["text"]["kind"] == "error"
        assert values["label"]["text"] == "1"
        card = served.ask("cards", start=0, count=3)["cards"][1]
        assert card["fields"][str(broken)]["kind"] == "error"
        assert served.ask("cards", start=0, count=3)["cards"][2]["fields"][str(broken)]["kind"] == "text"


def test_numbers_that_javascript_does_not_hold_stay_exact(tmp_path: Path) -> None:
    numbers = [2**63 - 1, -(2**63), 2**53 + 1]
    with fl.DatasetWriter(
        tmp_path / "x.fld", {"n": fl.IntField(), "j": fl.JSONField(), "f": fl.FloatField()}
    ) as writer:
        for number in numbers:
            writer.write_sample({"n": number, "j": {"n": [number, float("nan")]}, "f": float("inf")})
    with Served(tmp_path / "x.fld") as served:
        for index, number in enumerate(numbers):
            values = told(served, index)
            assert (values["n"]["text"], "value" in values["n"]) == (str(number), False)
            assert values["j"]["value"] == {"n": [str(number), "nan"]}
            assert values["f"]["text"] == "inf"
            assert served.found(where=where("0.value", "=", str(number))) == [index]


def test_deep_and_large_json_is_cut(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with fl.DatasetWriter(tmp_path / "x.fld", {"j": fl.JSONField()}) as writer:
        for value in (deep, list(range(100_000)), {"text": "x" * 200_000}):
            writer.write_sample({"j": value})
    with Served(tmp_path / "x.fld") as served:
        assert json.dumps(told(served, 0)["j"]["value"]).count("[") < 30
        many = told(served, 1)["j"]
        assert (len(many["value"]) <= 5000, many["more"]) == (True, True)
        assert len(told(served, 2)["j"]["value"]["text"]) < 60_000
        assert len(served.ask("cards", start=0, count=3)["cards"]) == 3


def test_tars_folders_and_lines_are_shown_too(tmp_path: Path) -> None:
    known = made(0)
    file = io.BytesIO()
    PIL.Image.fromarray(known["image"]).save(file, "jpeg")
    sound = io.BytesIO()
    soundfile.write(sound, known["sound"][0], RATE, format="wav")
    parts = {"jpg": file.getvalue(), "json": b'{"a": [1]}', "cls": b"7", "txt": b"hello", "wav": sound.getvalue()}
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(3):
            for ending, data in parts.items():
                member = tarfile.TarInfo(f"a/{number}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    with Served(tmp_path / "x.tar") as served:
        values = told(served, 1)
        assert [value["kind"] for value in values.values()] == ["text", "image", "json", "number", "text", "sound"]
        assert served.found(key="a/2") == [2]
        assert served.get(f"/api/file/0/{number_of(served, 'wav')}").headers["content-type"] == "audio/wav"
        assert picture(served, 0, "jpg", height=20, width=20, crop=1).size == (20, 20)
        assert {one["state"] for one in served.ask("check/0")} == {"none"}
    for name in ("cats", "dogs"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "1.jpg").write_bytes(file.getvalue())
    with Served(tmp_path / "folder") as served:
        assert served.ask("dataset")["classes"] == ["cats", "dogs"]
        assert [value["kind"] for value in told(served, 1).values()] == ["image", "number", "text"]
        assert served.found(key="dogs/*") == [1]
        assert picture(served, 0, "image", height=20, width=20).width == 20
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"t": f"line {i}", "n": i}) for i in range(9)))
    with Served(tmp_path / "x.jsonl") as served:
        assert told(served, 4)["t"]["text"] == "line 4"
        assert served.found(where=[where("1.value", ">=", 3), where("0.value", "contains", "5")]) == [5]


def test_files_of_all_codecs_come_with_their_type(tmp_path: Path, sounds: dict[str, Path]) -> None:
    types = {"wav": "audio/wav", "flac": "audio/flac", "vorbis": "audio/ogg", "opus": "audio/ogg", "mp3": "audio/mpeg"}
    with fl.DatasetWriter(tmp_path / "x.fld", {"sound": fl.AudioCompressedField()}) as writer:
        paths = [path for path in sounds.values() if path.suffix != ".aiff"]
        for path in paths:
            writer.write_sample({"sound": path})
    seen = set()
    with Served(tmp_path / "x.fld") as served:
        for index, path in enumerate(paths):
            codec = told(served, index)["sound"]["codec"]
            answer = served.get(f"/api/file/{index}/0")
            assert (answer.headers["content-type"], answer.body) == (types[codec], path.read_bytes())
            assert len(served.ask(f"peaks/{index}/0", count=20)["low"]) == 20
            seen.add(codec)
    assert seen == set(types)


def test_bytes_that_are_files_are_shown_as_what_is_in_them(tmp_path: Path) -> None:
    known = made(0)
    files = []
    for form in ("jpeg", "png", "webp", "gif"):
        file = io.BytesIO()
        PIL.Image.fromarray(known["image"]).save(file, form)
        files.append(file.getvalue())
    array = io.BytesIO()
    np.save(array, known["array"])
    sound = io.BytesIO()
    soundfile.write(sound, known["sound"][0], RATE, format="flac")
    files += [
        array.getvalue(),
        sound.getvalue(),
        video("h264.mp4").read_bytes(),
        b'{"a": 1}',
        b"text",
        b"\xff\xd8\xff no",
    ]
    with fl.DatasetWriter(tmp_path / "x.fld", {"file": fl.BytesField()}) as writer:
        for data in files:
            writer.write_sample({"file": data})
    with Served(tmp_path / "x.fld") as served:
        values = [told(served, index)["file"] for index in range(len(files))]
        kinds = ["image", "image", "image", "animation", "array", "sound", "video", "json", "text", "error"]
        assert [value["kind"] for value in values] == kinds
        assert {(value["height"], value["width"]) for value in values[:3]} == {(64, 96)}
        for index in range(3):
            assert picture(served, index, "file", height=32, width=32, crop=1).size == (32, 32)
        assert served.ask("plot/4/0")["form"] == "map"
        assert len(served.ask("peaks/5/0", count=9)["low"]) == 9
        assert "not enough values" not in values[-1]["text"]
        for index, data in enumerate(files):
            assert served.get(f"/api/file/{index}/0").body == data


def test_a_tokenizer_that_is_not_stored_can_be_named(tmp_path: Path) -> None:
    tokenizer = byte_pair()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = "two dogs in the park"
    with fl.DatasetWriter(tmp_path / "x.fld", {"tokens": fl.TokenizedTextField(tokenizer)}) as writer:
        writer.write_sample({"tokens": text})
    with Served(tmp_path / "x.fld") as served:
        value = told(served, 0)["tokens"]
        assert ("pieces" in value, value["note"]) == (False, "the tokenizer is not stored; --tokenizer names it")
    with Served(tmp_path / "x.fld", tokenizer=str(tmp_path / "tokenizer.json")) as served:
        assert told(served, 0)["tokens"]["text"] == text


def test_a_dataset_in_a_store_is_shown(every_path: Path) -> None:
    with web_server(every_path.parent) as url, Served(f"{url}/{every_path.name}") as served:
        values = told(served, 2)
        assert {value["kind"] for value in values.values()} & {"error", "missing"} == set()
        assert served.ask("cards", start=0, count=13)["cards"][2]["key"] == "things/disc_002"
        assert served.found(key="*_00[12]") == [1, 2]
        assert picture(served, 2, "image", height=32, width=32, crop=1).size == (32, 32)
        labels = next(column.id for column in served.samples.columns if column.label == "label")
        assert served.found(where=where(labels, "=", 1)) == [1, 5, 9]
        assert served.ask("histogram", column=labels)["of"] == 13
        assert {one["state"] for one in served.ask("check/2")} == {"good"}


def test_an_archive_is_shown_as_its_files(tmp_path: Path) -> None:
    files = {"a/text.txt": b"hello", "a/page.html": b"<b>", "b.json": b"[1, 2]", "c.bin": b"\0\1"}
    with fl.ArchiveWriter(tmp_path / "x.fld") as writer:
        for name, data in files.items():
            writer.add(Entry(name.encode(), size=len(data), read=lambda data=data: data))  # type: ignore[misc]
    with Served(tmp_path / "x.fld") as served:
        assert served.ask("dataset")["format"] == "archive"
        cards = {card["key"]: card["fields"][str(number_of(served, "data"))] for card in
                 served.ask("cards", start=0, count=9)["cards"]}  # fmt: skip
        kinds = {name: card["kind"] for name, card in cards.items()}
        assert kinds == {"a/text.txt": "text", "a/page.html": "text", "b.json": "json", "c.bin": "bytes"}
        assert len(served.found(key="a/")) == 2


def test_a_stream_of_tokens_is_shown_as_windows(tmp_path: Path) -> None:
    with fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=1000) as writer:
        writer.write(np.arange(700) % 1000)
    MemoryStore("viewed").put("x.fld", (tmp_path / "x.fld").read_bytes())
    for path in (tmp_path / "x.fld", "memory://viewed/x.fld"):
        with Served(path) as served:
            (value,) = told(served, 1).values()
            assert (value["kind"], value["tokens"][0], value["count"]) == ("tokens", 256, 256)


def test_samples_that_only_come_one_after_the_other_are_refused(tmp_path: Path) -> None:
    vectors = Path(__file__).parents[1] / "vectors/formats/examples.tfrecord.gz"
    with pytest.raises(FormatError, match=r"random access is needed.*fastloader convert"):
        open_samples(str(vectors))


@pytest.mark.parametrize(
    ("data", "kind", "shown"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg", "image"), (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav", "sound"),
        (b"OggS" + b"\0" * 24 + b"\x01vorbis", "audio/ogg", "sound"), (b"\0\0\0\x18ftypisom", "video/mp4", "video"),
        (b"\x1a\x45\xdf\xa3\x01webm", "video/webm", "video"), (b"<svg onload=x>", "application/octet-stream", "text"),
        (b"<!doctype html>", "application/octet-stream", "text"), (b'{"a": 1}', "application/octet-stream", "json"),
        (b"{nothing", "application/octet-stream", "text"), (b"%PDF-1.7\0", "application/octet-stream", "bytes"),
        (b"", "application/octet-stream", "text"), (b"\xfe\xff", "application/octet-stream", "bytes"),
    ],
)  # fmt: skip
def test_bytes_are_what_they_are(data: bytes, kind: str, shown: str) -> None:
    assert sniff(data) == (shown, kind)
