"""Several writers at once, for tests of disks and of stores."""

from __future__ import annotations

import threading
from typing import Any

import fastloader as fl

FIELDS = {"n": fl.IntField(), "data": fl.BytesField()}


def check_two_writers(where: str, options: dict[str, Any] | None) -> None:
    """Threads that delete and add as fast as they can: each change is there in full or was refused."""
    with fl.DatasetWriter(where, FIELDS, shard_size=300, keys=True, storage_options=options) as writer:
        for i in range(40):
            writer.write_sample({"n": i, "data": b"%d" % i}, f"k{i}")
    done: list[str] = []
    refused: list[str] = []
    other: list[BaseException] = []

    def work(mine: int) -> None:
        for turn in range(5):
            try:
                if mine == 0:
                    fl.edit(where, options).delete(keys=[f"k{turn}"])
                    done.append(f"-k{turn}")
                else:
                    with fl.DatasetWriter(where, None, mode="a", storage_options=options) as writer:
                        writer.write_sample(
                            {"n": 100 * mine + turn, "data": b"%d" % (100 * mine + turn)}, f"n{mine}.{turn}"
                        )
                    done.append(f"n{mine}.{turn}")
            except fl.StoreError as error:
                refused.append(str(error))
            except BaseException as error:
                other.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not other
    reader = fl.open(where, options)
    keys = {reader.key_of(i) for i in range(len(reader))}
    expected = {f"k{i}" for i in range(40)} - {one[1:] for one in done if one[0] == "-"}
    assert keys == expected | {one for one in done if one[0] == "n"}
    assert len(done) + len(refused) == 15
    assert all(
        "was changed by another writer in the meantime" in said or "none can be added" in said for said in refused
    )
    assert fl.edit(where, options).snapshots()[0].number == 1 + len(done)
