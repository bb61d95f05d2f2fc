"""Credentials as AWS's own tools keep them: profiles in ``~/.aws``."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

from fastloader.errors import StoreError

_TAKEN = {
    "aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token", "region": "region", "endpoint_url": "endpoint",
}  # fmt: skip


def aws_profile(name: str | None) -> dict[str, str]:
    """What a profile says, by the names of the client's options.

    Without a name, that of ``AWS_PROFILE`` or the default profile, and nothing where there is none or where the
    environment has a key already.
    """
    asked = name or os.environ.get("AWS_PROFILE")
    if asked is None and "AWS_ACCESS_KEY_ID" in os.environ:
        return {}
    wanted = asked or "default"
    found: dict[str, str] = {}
    known = False
    for variable, file, prefix in (
        ("AWS_CONFIG_FILE", "config", "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ):
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except configparser.Error as error:
            raise StoreError(f"can't be read: {error}", path=path) from error
        for section in (prefix + wanted, wanted) if prefix else (wanted,):
            if parser.has_section(section):
                known = True
                found |= {_TAKEN[key]: value for key, value in parser.items(section) if key in _TAKEN}
                break
    if asked is not None and not known:
        raise StoreError(f"there is no profile {asked!r} in ~/.aws/config or ~/.aws/credentials", hint="check its name")
    return found
