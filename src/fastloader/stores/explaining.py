"""What an object store's client or server said, as errors of ours, and whether asking again may help."""

from __future__ import annotations

import re

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores.base import ChangedError, NoConditionsError, RefusedError, full_url
from fastloader.stores.connecting import HINTS, shortened

_STATUS = re.compile(r"status code: (\d{3})")
_PLACE = {"s3": "bucket", "gs": "bucket", "az": "container"}
_GIVERS = (
    "/latest/api/token", "/latest/meta-data/iam/", "/metadata/identity/oauth2/token", "/computeMetadata/v1/",
)  # fmt: skip
"""Where virtual machines of Amazon, Microsoft and Google get their credentials."""
_REFUSED = {"PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "NotImplementedError"}
_REFUSED |= {"UnknownConfigurationKeyError", "InvalidPathError", "RustPanic", "PanicException"}


def changed(url: str, key: str, how: str) -> ChangedError:
    """An object that is another one by now."""
    return ChangedError(
        f"is not the object it was when it was opened: {how}", path=full_url(url, key), hint="open it again"
    )


def explained(
    error: BaseException, url: str, kind: str, key: str, *, writing: bool = False, tried: int = 1
) -> StoreError:
    """What the client or the server said, shortened to what helps, with the object it concerns."""
    where = full_url(url, key)
    name = type(error).__name__
    if isinstance(error, StoreError):
        return error
    if isinstance(error, FileNotFoundError):
        what = _PLACE.get(kind, "place") if writing else "object"
        return NotFoundError(f"there is no such {what}", path=where, hint=HINTS[kind])
    if name == "AlreadyExistsError":
        return ChangedError("is there already", path=where)
    if name == "PreconditionError":
        if writing:
            return ChangedError("was changed by another writer in the meantime", path=where, hint="read it again")
        return changed(url, key, "the server says so")
    said = shortened(error)
    status = _status(error)
    if lacks_credentials(error):
        said = f"no credentials were given, and the service of virtual machines gave none: {said}"
        return StoreError(said, path=where, hint=HINTS[kind])
    if status == 404:  # where it is an object that is missing, the client says so
        return NotFoundError(f"there is no such {_PLACE.get(kind, 'place')}: {said}", path=where, hint=HINTS[kind])
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
        return RefusedError(f"access is refused: {said}", path=where, hint=HINTS[kind])
    if writing and (name == "NotImplementedError" or status == 501):
        return NoConditionsError(f"the store can't do that: {said}", path=where)
    if isinstance(error, ValueError):
        hint = "keys have no '//', '.' or '..' in them"
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in key):
            said, hint = f"the key {key!r} has a character that can't be printed", "give it another name"
        return StoreError(f"can't be asked for: {said}", path=where, hint=hint)
    often = f" {tried} times" if tried > 1 else ""
    return StoreError(f"the request failed{often}: {said}", path=where, hint=HINTS[kind])


def lacks_credentials(error: BaseException) -> bool:
    """Whether the client had none, and asked the service that virtual machines get theirs from."""
    return any(place in str(error) for place in _GIVERS)


def answer_broke_off(error: StoreError) -> bool:
    """Whether the server had begun to answer: then the client, which repeats all else itself, gives up at once."""
    return any(said in error.message for said in ("response body error", "invalid multipart response"))


def worth_repeating(error: BaseException) -> bool:
    """Whether the same request may be answered the next time."""
    if isinstance(error, FileNotFoundError | StoreError | ValueError) or type(error).__name__ in _REFUSED:
        return False  # a ValueError is the client's, who asked nobody
    if type(error).__name__ in ("PreconditionError", "AlreadyExistsError"):
        return False
    status = _status(error)
    return status is None or status >= 500 or status in (408, 425, 429)


def _status(error: BaseException) -> int | None:
    """What the server answered with, where it did."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None
