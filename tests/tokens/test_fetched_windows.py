"""Windows that the engine has fetched: whole blocks come, each is checked, and what is given out are slices."""

import threading
from contextlib import contextmanager

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels
from fastloader.loader.parts import KINDS
from fastloader.loader.reading import Reading


class Fetched:
    """An object of tokens and an engine that has its windows fetched; ``reads`` are the ranges it asked for."""

    def __init__(self, begin, tokens, block, size, step, reading, checked):
        self.begin, self.block, self.tokens = begin, block, tokens
        self.end = begin + len(tokens)
        crcs = kernels.block_crcs(tokens, block)
        self.served = bytearray(bytes(begin) + tokens + crcs)
        known = np.frombuffer(bytes(self.end) + crcs, np.uint8)  # no tokens are here
        table = kernels.Table(known, begin, len(tokens), 1, block, self.end) if checked else None
        self.windows = kernels.Payloads.windows(known, begin, self.end, size, step, table)
        self.reads = []
        self._ended = False
        plan = (KINDS["fixed"], 0, size, 0, None, [])
        self._engine = kernels.Engine([plan], 2, 4, 0, reading.engine_options())
        number = self._engine.add_file(("object", 0, 0), [self.windows])
        self._engine.add_source([(None, None, self.windows, number)])

    def _serve(self):
        while not self._ended:
            for ticket, _, begin, size in self._engine.take_reads(8, 20):
                self.reads.append((begin, begin + size))
                self._engine.finish_read(ticket, bytes(self.served[begin : begin + size]))

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self._serve)
        self._engine.start()
        thread.start()
        try:
            yield self
        finally:
            self._ended = True
            self._engine.wake_reads()
            thread.join()
            self._engine.stop()

    def batches(self, parts):
        """Rows of windows, and which of them were refused with what, by batch; all are under way at once."""
        tickets = [self._engine.submit(None, np.array(rows, np.int64)) for rows in parts]
        for ticket in tickets:
            (found,), failures = self._engine.wait(ticket)
            yield found[1], {row: (kind, message) for _, kind, message, row, *_ in failures}


EITHER = st.booleans()


@st.composite
def objects(draw, apart=EITHER, checked=EITHER):
    """An object, and some batches of its windows in any order."""
    size, step = draw(st.integers(1, 90)), draw(st.integers(1, 120))
    tokens = np.random.default_rng(draw(st.integers(0, 99))).bytes(draw(st.integers(size, 2000)))
    unit = draw(st.sampled_from([0, 1, 64, 512, 4096]))
    reading = Reading("remote", draw(st.sampled_from([1, 500, 1 << 20])), max(unit, 64), apart=True)
    if not draw(apart):
        reading = Reading("remote", reading.memory, unit)
    block = draw(st.sampled_from([1, 7, 64, 100, 5000]))
    made = Fetched(draw(st.integers(0, 300)), tokens, block, size, step, reading, draw(checked))
    order = draw(st.permutations(range(made.windows.rows)))
    each = draw(st.integers(1, 40))
    return made, size, step, [order[at : at + each] for at in range(0, len(order), each)]


@settings(max_examples=120, deadline=None)
@given(objects())
def test_windows_are_slices_of_the_object(case):
    made, size, step, parts = case
    with made.running():
        for rows, (values, failures) in zip(parts, made.batches(parts), strict=True):
            assert not failures
            wanted = [made.tokens[row * step : row * step + size] for row in rows]
            assert values.tobytes() == b"".join(wanted)


@settings(max_examples=60, deadline=None)
@given(objects(apart=st.just(False), checked=st.just(True)))
def test_whole_blocks_are_asked_for_and_nothing_else(case):
    made, _, _, parts = case
    with made.running():
        assert not any(failures for _, failures in made.batches(parts))
    for begin, end in made.reads:
        assert (begin - made.begin) % made.block == 0
        assert end == made.end or (end - made.begin) % made.block == 0
        assert made.begin <= begin < end <= made.end


@settings(max_examples=120, deadline=None)
@given(objects(checked=st.just(True)), st.data())
def test_a_changed_byte_is_found_by_each_window_of_its_block_and_no_other(case, data):
    made, size, step, parts = case
    at = data.draw(st.integers(0, len(made.tokens) - 1))
    made.served[made.begin + at] ^= 1 << data.draw(st.integers(0, 7))
    block = at // made.block
    with made.running():
        for rows, (values, failures) in zip(parts, made.batches(parts), strict=True):
            for place, row in enumerate(rows):
                first, last = row * step, row * step + size - 1
                if first // made.block <= block <= last // made.block:
                    assert failures.pop(place) == ("table", f"block {block} is damaged")
                elif len(values):
                    assert values[place * size : (place + 1) * size].tobytes() == made.tokens[first : last + 1]
            assert not failures


def test_in_order_each_byte_comes_once_and_units_in_a_read_each():
    tokens = np.random.default_rng(0).bytes(100_000)
    made = Fetched(100, tokens, 64, 51, 50, Reading("remote", 1 << 20, 4096), True)
    with made.running():
        for rows in range(0, made.windows.rows, 10):  # one after the other: a batch too early would cut a unit in two
            list(made.batches([range(rows, min(rows + 10, made.windows.rows))]))
    made.reads.sort()
    assert made.reads[0][0] == made.begin
    assert all(end == begin for (_, end), (begin, _) in zip(made.reads, made.reads[1:], strict=False))
    assert len(made.reads) == -(-made.end // 4096)


def test_a_block_is_checked_once_while_it_is_here():
    """A byte that changes in memory behind the check shows that there was none again: this is no promise, but speed."""
    tokens = bytes(range(256)) * 4
    made = Fetched(0, tokens, 256, 16, 16, Reading("remote", 1 << 20, 1024), True)
    served = np.frombuffer(bytearray(made.served), np.uint8).copy()
    made._serve = lambda: None
    with made.running():
        first = made._engine.submit(None, np.array([0], np.int64))
        ((ticket, _, begin, size),) = made._engine.take_reads(8, 5000)
        made._engine.finish_read(ticket, served[begin : begin + size])
        assert made._engine.wait(first)[1] == []
        served[5] ^= 1  # of a block that was checked
        served[300] ^= 1  # and of one that was not
        later = made._engine.submit(None, np.array([1, 20], np.int64))
        _, failures = made._engine.wait(later)
    assert [(row, message) for _, _, message, row, *_ in failures] == [(1, "block 1 is damaged")]


def test_what_a_batch_waits_for_is_not_dropped_for_another():
    """Memory for three units, and five that are wanted: the one that is wanted twice comes once."""
    unit = 1024
    tokens = np.random.default_rng(0).bytes(5 * unit)
    made = Fetched(0, tokens, 64, 16, 16, Reading("remote", 3 * unit, unit), True)
    made._serve = lambda: None
    made._engine.set_threads(1)  # what is submitted first asks first

    def submit(*units):
        return made._engine.submit(None, np.array([number * unit // 16 for number in units], np.int64))

    def come():
        """What is asked for comes, in whatever pieces."""
        for ticket, _, begin, size in made._engine.take_reads(8, 30_000):
            made.reads.append((begin // unit, (begin + size) // unit))
            made._engine.finish_read(ticket, bytes(made.served[begin : begin + size]))

    with made.running():
        first = submit(0)
        come()
        made._engine.wait(first)
        second, third, fourth = submit(1, 2), submit(3, 4), submit(0)
        made._engine.wait(submit())  # by now all have asked, and but for the second they wait for memory
        come()
        come()
        for ticket in (second, third, fourth):
            assert made._engine.wait(ticket)[1] == []
    assert made.reads == [(0, 1), (1, 3), (3, 5)]
