"""One module a peer, each for an environment of its own. What such a module has:

- ``VERSION``: of the library, and what it decodes with where that is another
- ``prepare(task)``: writes the peer's own format into ``task.packed``; absent where it reads the files as they are
- ``batches(task)``: yields the batches of one epoch of ``task.passes`` shuffled passes over the photos
- ``crops(task, wanted)``: these boxes of these photos, cropped and resized as ``batches`` does it: (n, 224, 224, 3)
"""
