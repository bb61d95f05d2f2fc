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


_KEYS = {"access_key_id", "secret_access_key", "session_token"}
_ELSEWHERE = ("sso_session", "sso_start_url", "role_arn", "credential_process", "login_session")
"""What a profile has in place of keys that have to be got from somebody."""


def aws_profile(name: str | None, *, keys: bool = True) -> dict[str, str]:
    """What a profile says, by the names of the client's options; without its keys, where they are not wanted.

    Without a name, it is that of ``AWS_PROFILE`` or the default profile, and nothing where there is none. As AWS's own
    tools have it, the environment's region comes before a profile's, and its keys before those of one that was not
    named here.
    """
    asked = name or os.environ.get("AWS_PROFILE")
    keys = keys and not (name is None and os.environ.get("AWS_ACCESS_KEY_ID"))
    wanted = asked or "default"
    said: dict[str, str] = {}
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
                said |= dict(parser.items(section))
                break
    if asked is not None and not known:
        raise StoreError(f"there is no profile {asked!r} in ~/.aws/config or ~/.aws/credentials", hint="check its name")
    found = {_TAKEN[key]: value for key, value in said.items() if key in _TAKEN}
    way = next((key for key in _ELSEWHERE if key in said), None)
    if keys and asked is not None and way is not None and "access_key_id" not in found:
        raise StoreError(
            f"the profile {asked!r} has no keys but {way}, by which they are not got here",
            hint=f'eval "$(aws configure export-credentials --profile {asked} --format env)" puts them into the '
            "environment; then leave the profile out",
        )  # fmt: skip
    left_out = set() if keys else set(_KEYS)
    if os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        left_out.add("region")
    return {option: value for option, value in found.items() if option not in left_out}
