"""The controller is told what was observed and decides; a simulated loader shows where it ends up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from left_behind import left, threads, until

import fastloader as fl
from fastloader.loader import tuning
from fastloader.loader.resources import Memory
from fastloader.loader.runner import SPARE_SLOTS
from fastloader.loader.tuning import Controller, Limits, Observation, Setting, Tuner

PLENTY = Memory(available=60 << 30, total=64 << 30)


@dataclass
class Machine:
    """A loader in numbers: seconds a batch for one thread, threads that are of use, the consumer's seconds a batch."""

    make: float
    consume: float
    useful: int = 1000
    least_ahead: int = 1
    batch_bytes: int = 1 << 20
    memory: Memory = PLENTY

    def observe(self, setting: Setting, noise: float = 0.0) -> Observation:
        """What 100 batches are like under a setting."""
        threads = min(setting.threads, self.useful)
        make = self.make / threads * max(1, self.least_ahead / setting.ahead)
        each = max(make, self.consume) * (1 + noise)
        idle = 1 - self.make / threads / each if each else 0.0
        return Observation(100, 100 * each, 100 * (each - self.consume), max(idle, 0.0), self.batch_bytes, self.memory)


def run(machine: Machine, limits: Limits, times: int, noise: list[float] | None = None) -> list[Setting]:
    """The setting after each observation."""
    controller = Controller(Setting(1, 2), limits)
    amounts = noise or [0.0]
    return [
        controller.observe(machine.observe(controller.setting, amounts[i % len(amounts)])).setting for i in range(times)
    ]


def changes(trace: list[Setting]) -> int:
    return sum(a != b for a, b in itertools.pairwise(trace))


def test_it_grows_while_the_consumer_waits_and_stops_when_it_does_not():
    trace = run(Machine(make=1.0, consume=0.3), Limits(64, 128), 200)
    assert trace[-1].threads == 4
    assert trace[20:] == [trace[20]] * 180


def test_a_consumer_that_never_waits_leaves_it_small():
    assert set(run(Machine(make=0.1, consume=0.3), Limits(64, 128), 50)) == {Setting(1, 2)}


def test_it_never_passes_the_limits():
    for setting in run(Machine(make=1.0, consume=0.0), Limits(6, 8), 300):
        assert 1 <= setting.threads <= 6
        assert 1 <= setting.ahead <= 8
    assert setting.threads == 6


@pytest.mark.parametrize("useful", [1, 2, 3, 5, 10, 23])
def test_it_finds_how_many_threads_are_of_use(useful):
    trace = run(Machine(make=1.0, consume=0.0, useful=useful), Limits(64, 128), 60)
    assert useful <= trace[-1].threads < 2 * useful


def test_what_brought_nothing_is_undone_and_left_alone_for_long():
    trace = run(Machine(make=1.0, consume=0.0, useful=2), Limits(64, 128), 2000)
    assert trace[40] == trace[-1]
    assert changes(trace[:40]) <= 8
    assert 0 < changes(trace[40:]) <= 8 * 5  # tried again after 50, 100, 200, 400 and 800 observations
    assert trace.count(trace[-1]) > 1900


def test_one_slow_moment_does_not_undo_a_growth():
    controller = Controller(Setting(1, 2), Limits(2, 4))
    machine = Machine(make=1.0, consume=0.0)
    for noise in (0.0, 1.5, 0.0, 0.0):
        controller.observe(machine.observe(controller.setting, noise))
    assert controller.setting.threads == 2


def test_more_batches_ahead_where_threads_lack_work():
    trace = run(Machine(make=1.0, consume=0.9, useful=1, least_ahead=8), Limits(1, 64), 60)
    assert trace[-1] == Setting(1, 8)


@given(st.lists(st.floats(-0.2, 0.2), min_size=5, max_size=40), st.integers(1, 12), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_noise_does_not_make_it_oscillate(noise, useful, consume):
    trace = run(Machine(make=1.0, consume=consume, useful=useful), Limits(16, 32), 400, noise)
    assert changes(trace) < 100
    assert trace == run(Machine(make=1.0, consume=consume, useful=useful), Limits(16, 32), 400, noise)


def test_short_memory_shrinks_batches_ahead_then_threads_and_nothing_grows_for_long():
    machine = Machine(make=1.0, consume=0.0)
    controller = Controller(Setting(8, 16), Limits(8, 16))
    machine.memory = Memory(available=1 << 30, total=64 << 30)
    trace = [controller.observe(machine.observe(controller.setting)) for _ in range(10)]
    assert [d.setting.ahead for d in trace[:4]] == [8, 4, 2, 1]
    assert trace[-1].setting == Setting(1, 1)
    assert "1024 MiB of memory are left" in trace[0].because
    machine.memory = PLENTY
    later = [controller.observe(machine.observe(controller.setting)).setting for _ in range(40)]
    assert set(later) == {Setting(1, 1)}


def test_batches_past_the_memory_limit_go_and_growing_stays_below_it():
    limit = 5 << 20
    controller = Controller(Setting(4, 16), Limits(4, 16, limit))
    machine = Machine(make=1.0, consume=0.9, useful=1, least_ahead=16)
    first = controller.observe(machine.observe(controller.setting))
    assert first.setting == Setting(4, 8)
    assert f"memory_limit={limit}" in first.because
    for _ in range(300):
        setting = controller.observe(machine.observe(controller.setting)).setting
        assert setting.ahead <= 8
    assert setting.ahead * machine.batch_bytes <= limit


def test_growing_that_would_use_up_the_memory_is_left_alone():
    tight = Memory(available=7 << 30, total=64 << 30)
    machine = Machine(make=1.0, consume=0.9, useful=1, least_ahead=16, batch_bytes=1 << 30, memory=tight)
    assert set(run(machine, Limits(1, 16), 20)) == {Setting(1, 2)}


# At work


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tuning") / "x.fld"
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(target, {"n": fl.IntField(), "photo": fl.JPEGImageField()}) as writer:
        writer.write_many({"n": i, "photo": rng.integers(0, 255, (40, 40, 3), np.uint8)} for i in range(600))
    return target


def test_batches_are_the_same_whatever_is_decided_on_the_way(path, monkeypatch):
    wanted = itertools.cycle([Setting(4, 8), Setting(1, 1), Setting(3, 2), Setting(2, 8)])
    decided = []

    def observe(self, seen):
        self.setting = next(wanted)
        decided.append(self.setting)
        return tuning.Decision(self.setting, "told so")

    monkeypatch.setattr(tuning, "OBSERVED_SECONDS", 0.0)
    monkeypatch.setattr(Controller, "observe", observe)
    loader = fl.DataLoader(fl.open(path), 6, seed=3, num_workers=4, auto_tune=True)
    plain = fl.DataLoader(fl.open(path), 6, seed=3, num_workers=1)
    for _ in range(3):
        for batch, expected in zip(loader, plain, strict=True):
            assert batch["n"].tolist() == expected["n"].tolist()
            assert (batch["photo"] == expected["photo"]).all()
            stats = loader.stats()
            assert (stats["threads"]["native"], stats["ahead"]) == (
                (decided[-1].threads, decided[-1].ahead) if decided else (1, 2)
            )
    assert len(decided) > 12
    told = stats["tuning"]
    assert plain.stats()["tuning"] is None
    assert (told["most_threads"], told["most_ahead"], told["because"]) == (4, 8, "told so")
    assert told["changes"][-1].items() >= {"threads": told["threads"], "ahead": told["ahead"]}.items()


def test_threads_come_and_go_with_the_setting(path, monkeypatch):
    monkeypatch.setattr(tuning, "OBSERVED_SECONDS", 0.0)
    script = itertools.chain([Setting(6, 2), Setting(1, 2)], itertools.repeat(Setting(3, 2)))
    monkeypatch.setattr(Controller, "observe", lambda self, seen: scripted(self, next(script)))

    def scripted(controller, setting):
        controller.setting = setting
        return tuning.Decision(setting, "told so")

    before = threads("fl-engine")
    loader = fl.DataLoader(fl.open(path), 6, num_workers=6, auto_tune=True)
    seen = []
    for _ in loader:
        # New ones have no name at first, and those that are to leave do so when they look for work.
        wanted = loader.stats()["threads"]["native"]
        until(lambda wanted=wanted: len(threads("fl-engine") - before) == wanted)
        seen.append(wanted)
    assert [number for number, _ in itertools.groupby(seen)] == [1, 6, 1, 3]
    assert not left(lambda: threads("fl-engine"), before)


def test_slots_are_kept_for_as_many_batches_as_are_ahead(path, monkeypatch):
    monkeypatch.setattr(tuning, "OBSERVED_SECONDS", 0.0)
    ahead = [8]

    def observe(self, seen):
        self.setting = Setting(2, ahead[0])
        return tuning.Decision(self.setting, "told so")

    monkeypatch.setattr(Controller, "observe", observe)
    loader = fl.DataLoader(fl.open(path), 6, num_workers=4, auto_tune=True)
    for _ in range(10):
        for _ in loader:
            pass
    assert loader.stats()["ahead"] == 8
    assert loader.stats()["slots"] <= 8 + SPARE_SLOTS
    ahead[0] = 1
    before = loader.stats()["memory"]
    for _ in loader:
        pass
    assert loader.stats()["ahead"] == 1
    assert loader.stats()["memory"]["kept"] <= (1 + SPARE_SLOTS) * loader.stats()["memory"]["largest_batch"]
    assert loader.stats()["memory"]["kept"] < before["kept"]


def test_a_tuned_loader_starts_with_one_thread(path):
    loader = fl.DataLoader(fl.open(path), 6, num_workers=4, auto_tune=True)
    next(iter(loader))
    assert (loader.stats()["threads"]["native"], loader.stats()["ahead"]) == (1, 2)
    assert loader.stats()["tuning"]["because"] == "nothing was observed yet"


def test_without_a_number_of_workers_the_usable_cpus_are_the_most(path, monkeypatch):
    monkeypatch.setattr("fastloader.loader.options.usable_cpus", lambda: 11)
    assert fl.DataLoader(fl.open(path), auto_tune=True).stats()["tuning"]["most_threads"] == 11
    assert fl.DataLoader(fl.open(path)).stats()["threads"]["native"] == 4


def test_the_time_until_an_epochs_first_batch_is_no_observation(monkeypatch):
    monkeypatch.setattr(tuning, "OBSERVED_SECONDS", 0.0)
    usage = {"hired": 1.0, "idle": 0.0, "largest_batch": 1}
    tuner = Tuner(Limits(8, 16))
    for _ in range(100):
        tuner.begin_epoch()
        assert tuner.given(5.0, lambda: usage) is None
    tuner.begin_epoch()
    given = [tuner.given(5.0, lambda: usage) for _ in range(tuning.OBSERVED_BATCHES + 1)]
    assert given == [None] * tuning.OBSERVED_BATCHES + [Setting(2, 3)]
