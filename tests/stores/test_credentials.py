"""Who a store takes us for: the environment, profiles and options, of which none is mixed with another."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted_server import scripted_server

import fastloader as fl
from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import client, open_store
from fastloader.stores.base import RefusedError
from fastloader.stores.connecting import configuration
from fastloader.stores.explaining import explained
from fastloader.testing.seaweed import S3Server

HERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what AWS's tools keep, and nothing of theirs in the environment."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def profiles(aws: Path) -> None:
    """A default one and another, each with keys and a place."""
    (aws / "config").write_text(
        "[default]\nregion = eu-north-1\nendpoint_url = http://default:9\n[profile team]\nregion = eu-west-1\n"
    )
    (aws / "credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = d\naws_session_token = dt\n"
        "[team]\naws_access_key_id = T\naws_secret_access_key = t\n"
    )


def test_the_environment_comes_before_profiles_as_for_the_tools_of_aws(
    profiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"access_key_id": "D", "secret_access_key": "d", "session_token": "dt"}
    place = {"region": "eu-north-1", "endpoint": "http://default:9"}
    assert configuration("s3", {}) == keys | place
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    assert configuration("s3", {}) == keys | {"endpoint": "http://default:9"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", HERE)
    assert configuration("s3", {}) == keys | {"endpoint": HERE}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    assert configuration("s3", {}) == {"endpoint": HERE}
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert configuration("s3", {}) == {"endpoint": HERE}
    named = configuration("s3", {"profile": "team"})
    assert named == {"access_key_id": "T", "secret_access_key": "t", "endpoint": HERE}


def test_keys_of_the_environment_do_not_hide_where_a_profile_says_the_server_is(
    profiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    assert configuration("s3", {}) == {"region": "eu-north-1", "endpoint": "http://default:9"}


def test_of_a_named_profile_an_anonymous_reader_takes_the_place_alone(profiles: None) -> None:
    assert configuration("s3", {"anonymous": True}) == {"skip_signature": True}
    assert configuration("s3", {"anonymous": True, "profile": "team"}) == {
        "region": "eu-west-1", "skip_signature": True,
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"profile": "team"}, {"access_key_id": "G", "secret_access_key": "g"}])
def test_keys_and_session_tokens_are_of_one_owner(
    options: dict[str, str], profiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed with the token of others, every request is refused."""
    if options:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "e")
    else:  # the token of an earlier session is left in the environment
        monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "et")
    store, key = open_store("s3://bucket/key", {"endpoint": HERE, **options})
    reader: Any = store.writer()  # type: ignore[attr-defined]
    signed = client.module().sign(reader, "GET", key, timedelta(seconds=9))
    assert f"Credential={options.get('access_key_id', 'T')}%2F" in signed
    assert "Security-Token" not in signed


def test_a_token_that_belongs_to_the_keys_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "e")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "et")
    given = {"access_key_id": "G", "secret_access_key": "g", "session_token": "gt"}
    for options, token in (({}, "et"), (given, "gt")):
        store, key = open_store("s3://bucket/key", {"endpoint": HERE, **options})
        reader: Any = store.writer()  # type: ignore[attr-defined]
        assert f"Security-Token={token}&" in client.module().sign(reader, "GET", key, timedelta(seconds=9))


def test_objects_are_read_with_keys_beside_a_token_of_others(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    store, key = open_store("s3://credentials/one", s3.storage_options())
    store.put(key, b"some bytes")
    assert bytes(store.read(key, 5, 5)) == b"bytes"
    assert [one.key for one in store.list("one")] == ["one"]


def test_a_profile_whose_keys_others_give_is_told(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aws / "config").write_text("[profile sso]\nsso_session = work\nregion = eu-west-1\n[default]\nrole_arn = r\n")
    with pytest.raises(StoreError, match=r"'sso' has no keys but sso_session.*export-credentials --profile sso"):
        open_store("s3://bucket/key", {"profile": "sso"})
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(StoreError, match="'sso' has no keys"):
        open_store("s3://bucket/key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    assert configuration("s3", {}) == {"region": "eu-west-1"}
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert configuration("s3", {}) == {}, "machines in a cloud may have a role all the same"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_endpoints_of_the_environment_may_have_no_tls(name: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, s3.endpoint)
    given = {name: value for name, value in s3.storage_options().items() if name != "endpoint"}
    store, key = open_store("s3://credentials/endpoint", given)
    store.put(key, b"x")
    assert store.stat(key).size == 1


@pytest.mark.parametrize("kind", ["s3", "az"])
def test_endpoints_may_end_with_a_slash(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"endpoint": f"{HERE}/account/"}, {"endpoint_url": f"{HERE}/account/"}):
        assert configuration(kind, dict(options)) == {"endpoint": f"{HERE}/account"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{HERE}/")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{HERE}/")
    assert configuration(kind, {}) == {"endpoint": HERE}


def test_azure_takes_its_endpoint_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", HERE)
    assert configuration("az", {"account_name": "a"}) == {"account_name": "a", "endpoint": HERE}


def test_who_has_no_credentials_is_told_so_and_soon() -> None:
    """Virtual machines get theirs from a service, which elsewhere nobody answers for."""
    with scripted_server(lambda request: [b"HTTP/1.1 500 Never\r\nContent-Length: 0\r\n\r\n"]) as service:
        options = {"endpoint": HERE, "metadata_endpoint": service.url, "first_wait": 0.001}
        store, key = open_store("s3://bucket/key", options)
        with pytest.raises(StoreError, match=r"^s3://bucket/key: no credentials were given.*storage_options"):
            store.stat(key)
    assert len(service.requests) == 3


def test_a_list_that_is_refused_or_of_no_bucket_says_so(s3: S3Server) -> None:
    wrong = s3.storage_options(secret_access_key="wrong", attempts=1)
    with pytest.raises(RefusedError, match="s3://credentials: access is refused"):
        list(open_store("s3://credentials", wrong)[0].list())
    with pytest.raises(NotFoundError, match="s3://no-such-bucket: there is no such bucket"):
        list(open_store("s3://no-such-bucket", s3.storage_options())[0].list())
    for url in ("s3://no-such-bucket/folder/", "s3://no-such-bucket/*.npz"):
        with pytest.raises(NotFoundError, match="there is no such bucket"):
            fl.open(url, s3.storage_options())


def test_what_is_written_where_no_bucket_is_says_so() -> None:
    error = explained(FileNotFoundError(), "s3://none", "s3", "a", writing=True)
    assert str(error).startswith("s3://none/a: there is no such bucket;")


def test_a_list_that_fails_is_not_taken_for_a_folder_that_is_not_there(s3: S3Server) -> None:
    """The server has the folder, and is asked for a list in vain."""

    def answer(request: Any) -> list[object]:
        status = b"500 Broken" if b"list-type" in request.head else b"404 Not Found"
        return [b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n"]

    with scripted_server(answer) as server, pytest.raises(StoreError, match="500 "):
        fl.open("s3://bucket/folder/", s3.storage_options(server.url, attempts=1))
