"""What bounds, told from numbers made by hand: each case is far from the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doctor.findings_by_hand import GIGABYTE, disk, findings, loaded, network, pace, work

from fastloader.doctor import diagnose
from fastloader.doctor.findings import Consumption
from fastloader.doctor.memory import Copying


def test_decoding_that_takes_long() -> None:
    told = diagnose(findings(fields=(work(cpu=5e-3), work("label", "Int", 1e-7)), hot=loaded(790)))
    (verdict,) = told.verdicts
    assert (verdict.bound, verdict.when) == ("decode", "every epoch")
    assert verdict.limit == pytest.approx(800, rel=0.01)
    assert verdict.text.startswith(
        "4 CPUs can make 800 samples/s, and 100% of their time goes to 'image' (JPEGImage: 5 ms"
    )
    assert (verdict.next_bound, verdict.next_limit) == ("disk", 20_000)


def test_png_gets_a_word_of_its_own() -> None:
    (verdict,) = diagnose(findings(fields=(work(type="PNGImage", cpu=5e-3),), hot=loaded(790))).verdicts
    assert verdict.cures[0].startswith("PNG is slow to unpack")
    (verdict,) = diagnose(findings(fields=(work(cpu=5e-3),), hot=loaded(790))).verdicts
    assert "PNG" not in "".join(verdict.cures)


def test_fewer_threads_than_cpus() -> None:
    (verdict,) = diagnose(findings(fields=(work(cpu=5e-3),), hot=loaded(790), threads=1)).verdicts
    assert verdict.cures[0] == "num_workers=4: there are 1 thread on 4 CPUs"


def test_resizing_that_takes_longer_than_decoding() -> None:
    field = work(cpu=5e-3, alone=1e-3, has_operations=True, resize=4e-3, resize_to=(224, 224), resize_is_used=True)
    (verdict,) = diagnose(findings(fields=(field,), hot=loaded(790))).verdicts
    assert verdict.bound == "resize"
    assert "resizing that to 224 x 224 4 ms" in verdict.text


def test_operations_that_take_longer_than_all_else() -> None:
    field = work(cpu=9e-3, alone=1e-3, has_operations=True, resize=1e-3, resize_to=(224, 224), resize_is_used=True)
    assert diagnose(findings(fields=(field,), hot=loaded(430))).verdicts[0].bound == "operations"


def test_what_is_only_copied() -> None:
    field = work("x", "NDArray", 1e-4, stored_bytes=1e6, unpacked_bytes=1e6, decoded_bytes=1e6)
    copying = Copying(pace(10 * GIGABYTE, 1 << 25, 1), pace(12 * GIGABYTE, 1 << 25, 4))
    fast = Copying(pace(10 * GIGABYTE, 1 << 25, 1), pace(90 * GIGABYTE, 1 << 25, 4))
    # What memory gives to all, or what CPUs get through.
    for changes, limit in (({}, 30_000), ({"copying": copying}, 12_000), ({"copying": fast, "cpus": 1}, 10_000)):
        told = diagnose(findings(fields=(field,), hot=loaded(11_000), disk=disk(90 * GIGABYTE), **changes))
        assert told.verdicts[0].bound == "copy"
        assert told.verdicts[0].limit == pytest.approx(limit, rel=0.01)


def test_a_disk_that_does_not_keep_up_and_data_that_does_not_fit() -> None:
    (verdict,) = diagnose(findings(disk=disk(1e8, 1e9))).verdicts
    assert (verdict.bound, verdict.limit) == ("disk", 1000)
    assert verdict.cures[0].startswith(
        'order="quasi_random" reads whole pages: this disk gives 1 GB/s of them, good for'
    )
    assert "100 GB do not stay in memory, where 64 GB are free" in verdict.cures[1]
    (verdict,) = diagnose(findings(disk=disk(1e8, 1e9), order="quasi_random")).verdicts
    assert verdict.limit == pytest.approx(10_000, rel=0.01)
    assert "quasi_random" not in "".join(verdict.cures)


def test_a_disk_matters_once_where_data_fits_into_memory() -> None:
    first, later = diagnose(findings(disk=disk(1e8), num_bytes=GIGABYTE)).verdicts
    assert (first.bound, first.when, first.limit) == ("disk", "the first epoch", 1000)
    assert (later.bound, later.when) == ("decode", "later epochs")
    assert later.limit == pytest.approx(40_000)
    assert "it concerns the first epoch alone" in first.cures[1]
    (both,) = diagnose(findings(fields=(work(cpu=5e-3),), hot=loaded(790), num_bytes=GIGABYTE)).verdicts
    assert (both.bound, both.when) == ("decode", "every epoch")


def test_a_loader_that_got_more_than_a_bare_loop() -> None:
    told = diagnose(findings(disk=disk(1e8), cold=loaded(5000, "I/O-bound: 5000 reads/s")))
    assert (told.verdicts[0].bound, told.verdicts[0].limit) == ("disk", 5000)
    # What was held back by something else tells of no limit of the disk.
    told = diagnose(findings(disk=disk(1e8), cold=loaded(30_000)))
    assert told.verdicts[0].bound == "decode"


def test_a_network_of_long_ways_or_narrow_ones() -> None:
    far = findings(disk=None, hot=None, cold=loaded(90, "I/O-bound"), network=network(1e6, 6e7, 1e7))
    (verdict,) = diagnose(far).verdicts
    assert (verdict.bound, verdict.limit) == ("network", 100)
    assert verdict.cures[0].startswith('order="quasi_random" or "sequential" asks for whole pages')
    assert "it is latency (30 ms a request), not bandwidth: 64 requests at a time give 60.0 times" in verdict.cures[1]
    narrow = findings(disk=None, hot=None, cold=loaded(90, "I/O-bound"), network=network(1e7, 1.1e7, 1e7))
    (verdict,) = diagnose(narrow).verdicts
    assert "it is bandwidth: 64 requests at a time give 11 MB/s, one gives 10 MB/s" in verdict.cures[0]
    assert "cache_dir=" in verdict.cures[-1]


def test_a_consumer_that_takes_its_time() -> None:
    (verdict,) = diagnose(findings(consumption=Consumption(0.5, "as was said"))).verdicts
    assert (verdict.bound, verdict.limit) == ("consumer", 512)
    assert "500 ms a batch of 256, as was said" in verdict.text
    assert "a faster loader would not be noticed" in verdict.cures[0]


def test_other_programs_on_the_cpus_do_not_change_what_bounds() -> None:
    crowded = loaded(100, busy=0.4, preempted=3.5)
    (verdict,) = diagnose(findings(fields=(work(cpu=5e-3),), hot=crowded)).verdicts
    assert verdict.bound == "decode"
    assert "gets 100 samples/s: its threads have a CPU 10% of the time they have work" in verdict.text


def test_what_no_part_explains_is_said() -> None:
    idle = loaded(100, "planning-bound: choosing samples takes 80%", busy=0.4, idle=3.6)
    (verdict,) = diagnose(findings(hot=idle, disk=disk(9 * GIGABYTE))).verdicts
    assert (verdict.bound, verdict.limit) == ("loader", 100)
    assert verdict.cures == ("planning-bound: choosing samples takes 80%",)


def test_limits_that_are_close_are_told() -> None:
    field = work(cpu=5e-3)
    told = diagnose(findings(fields=(field,), hot=loaded(790), consumption=Consumption(0.3, "measured")))
    assert "The next limit, and close to it, is consumer: 853 samples/s" in told.verdicts[0].text


@settings(max_examples=200, deadline=None)
@given(
    cpu=st.floats(1e-9, 10), random=st.floats(1, 1e11), step=st.none() | st.floats(1e-6, 100),
    order=st.sampled_from(["random", "sequential", "quasi_random"]), done=st.floats(0.1, 1e6),
    far=st.booleans(), size=st.integers(1, 10**13), stored=st.floats(0, 1e9),
)  # fmt: skip
def test_any_numbers_give_a_verdict_whose_limit_is_the_lowest(
    cpu: float, random: float, step: float | None, order: str, done: float, far: bool, size: int, stored: float
) -> None:
    way = {"network": network(random=random), "disk": None, "hot": None} if far else {"disk": disk(random)}
    found = findings(
        fields=(work(cpu=cpu, stored_bytes=stored), work("n", "Int", 1e-7)), order=order, cold=loaded(done),
        num_bytes=size, consumption=None if step is None else Consumption(step, "said"), **way,
    )  # fmt: skip
    told = diagnose(found)
    lowest = min(stage.samples_per_second for stage in told.stages if stage.counts)
    assert 1 <= len(told.verdicts) <= 2
    for verdict in told.verdicts:
        assert verdict.bound == "loader" or verdict.limit >= lowest
        assert verdict.text
        assert verdict.cures
    if not found.fits:
        assert told.verdicts[0].bound == "loader" or told.verdicts[0].limit == lowest


def test_a_crowd_explains_threads_that_wait_for_a_consumer_without_a_cpu() -> None:
    starved = replace(loaded(100, busy=0.4, idle=3.0), idle=0.02)
    assert diagnose(findings(hot=starved, disk=disk(9 * GIGABYTE))).verdicts[0].bound == "decode"
    free = replace(starved, idle=0.7)
    assert diagnose(findings(hot=free, disk=disk(9 * GIGABYTE))).verdicts[0].bound == "loader"
