"""Clients of obstore for a store: what their configuration is made of."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fastloader.errors import StoreError
from fastloader.stores import client
from fastloader.stores.profiles import aws_profile
from fastloader.stores.retrying import RetryPolicy
from fastloader.stores.urls import parse_url

CONNECT_TIMEOUT = 10
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables of the environment that say where the server is; the first that does counts."""
_ENDPOINT = re.compile(r"https?://[^\s/]+(/\S*)?")

HINTS = {
    "s3": "check the bucket's name, the credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE or storage_options), and the "
    "endpoint; storage_options={'anonymous': True} reads public buckets",
    "gs": "check the bucket's name and the credentials (GOOGLE_APPLICATION_CREDENTIALS or storage_options)",
    "az": "check the container's name and the credentials (AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or "
    "storage_options)",
    "http": "check the URL",
}
"""What to look at when a store of this kind refuses."""


def configuration(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """The client's configuration: what was asked for, the environment's endpoint, for S3 what the profile says besides.

    All else that the environment says the client finds by itself.
    """
    found: dict[str, Any] = {}
    anonymous = bool(options.pop("anonymous", False))
    if kind == "s3":
        named = options.pop("profile", None)
        given = anonymous or not options.keys().isdisjoint(("access_key_id", "aws_access_key_id"))
        if named is not None or not anonymous:
            found |= aws_profile(named, keys=not given)
    said = next(filter(None, map(os.environ.get, _ENDPOINTS.get(kind, ()))), None)
    if said is not None:
        found["endpoint"] = said
    if anonymous:
        found["skip_signature"] = True
    for name, value in options.items():
        found[name.removeprefix("aws_") if kind == "s3" else name] = value
    if "endpoint_url" in found:
        found["endpoint"] = found.pop("endpoint_url")
    if _ENDPOINT.fullmatch(str(found.get("endpoint"))):
        found["endpoint"] = found["endpoint"].rstrip("/")  # or the client asks for //container, which Azure refuses
    return found


def connect(
    kind: str, url: str, config: Mapping[str, Any], policy: RetryPolicy, *, repeats: bool, patient: bool = False
) -> Any:
    """A client; one that ``repeats`` makes requests again by itself, one that is ``patient`` lets each take long."""
    stores = client.module()._store
    settings = dict(config)
    endpoint = str(settings.get("endpoint") or "")
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        hint = "write it with its scheme, as in 'http://127.0.0.1:9000' or 'https://s3.example.org'"
        raise StoreError(f"endpoint={endpoint!r} is no URL", path=url, hint=hint)
    plain = endpoint.startswith("http://") or url.startswith("http://") or bool(settings.get("use_emulator"))
    limits = {
        "timeout": timedelta(seconds=policy.deadline if patient else policy.attempt_timeout),
        "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT, policy.attempt_timeout)),
    }
    shared = {
        "client_options": {"allow_http": plain, **limits, **settings.pop("client_options", {})},
        "retry_config": {
            "max_retries": policy.attempts - 1 if repeats else 0,
            "retry_timeout": timedelta(seconds=policy.deadline),
            "backoff": {
                "init_backoff": timedelta(seconds=policy.first_wait),
                "max_backoff": timedelta(seconds=policy.longest_wait),
                "base": 2,
            },
        },
    }
    bucket = parse_url(url).root.partition("://")[2].partition("@")[0]
    try:
        if kind == "http":
            if settings:
                raise ValueError(f"unknown options for http: {', '.join(settings)}")
            return stores.HTTPStore.from_url(url, **shared)
        if kind == "az" and url.startswith("abfss://"):
            return stores.AzureStore.from_url(url, **shared, **settings)
        if kind == "s3":
            settings = _of_one_owner(settings)
        made = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[kind]
        return made(bucket, **shared, **settings)
    except StoreError:
        raise
    except Exception as error:
        said = shortened(error)
        raise StoreError(f"storage_options are not understood: {said}", path=url, hint=HINTS[kind]) from error


def _of_one_owner(settings: dict[str, Any]) -> dict[str, Any]:
    """Keys that were given, without the session token of others: the client would take the environment's for theirs."""
    keys = {name: settings.get(name) for name in ("access_key_id", "secret_access_key")}
    others = any(map(os.environ.get, ("AWS_SESSION_TOKEN", "AWS_TOKEN")))
    if not (others and all(keys.values())) or settings.get("session_token") or settings.get("token"):
        return settings
    rest = {name: value for name, value in settings.items() if name not in keys}
    return {**rest, "credential_provider": lambda: {**keys, "token": None, "expires_at": None}}


def shortened(error: BaseException) -> str:
    """What was said, without what only the client's makers need, and of a server's page its message alone."""
    said = str(error).split("\n\nDebug source:")[0].strip()
    page = re.search(r"<Message>(.*?)</Message>", said, re.DOTALL)
    if page is None:
        return re.split(r"<!doctype|<html", said, maxsplit=1, flags=re.IGNORECASE)[0].strip()
    return f"{said.partition('<?xml')[0].partition('<Error>')[0].strip()} {page[1]}"
