"""Who gets an answer, and what each answer says to the browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from click.testing import CliRunner
from viewed import Served, write_numbers

from fastloader.cli import main
from fastloader.viewer import running
from fastloader.viewer.guard import COOKIE, is_loopback
from fastloader.viewer.running import PORT, listen

TOKEN = "the-right-one"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(write_numbers(tmp_path_factory.mktemp("guard") / "x.fld", 10), token=TOKEN) as served:
        yield served


def test_every_answer_is_safe(every: Served) -> None:
    for path in ("/", "/static/app.js", "/api/dataset", "/api/picture/0/0", "/api/file/0/0", "/nothing"):
        headers = every.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert ("sandbox" in policy) == path.startswith(("/api/picture", "/api/file"))
        assert "server" not in headers


def test_the_page_names_nothing_elsewhere_and_has_no_script_or_style_in_it() -> None:
    folder = Path(__file__).parents[2] / "src/fastloader/viewer/page"
    for file in folder.iterdir():
        text = file.read_text()
        elsewhere = re.findall(r"https?://[^\"'\s]+", text)
        assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}, file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), file
    page = (folder / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)


def test_pages_of_others_get_nothing(every: Served) -> None:
    for host in ("evil.example", f"evil.example:{every.port}", "127.0.0.1.evil.example", "", "[::2]"):
        assert every.get("/api/dataset", {"host": host}).status == 403
    for host in (f"localhost:{every.port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert every.get("/api/dataset", {"host": host}).status == 200
    for site in ("cross-site", "same-site"):
        assert every.get("/api/dataset", {"sec-fetch-site": site}).status == 403
        assert every.get("/static/app.js", {"sec-fetch-site": site}).status == 403
        assert every.get("/", {"sec-fetch-site": site}).status == 200
    assert every.get("/api/dataset", {"sec-fetch-site": "same-origin"}).status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert every.get("/api/dataset", method=method).status == 405


def test_without_the_token_there_is_nothing(guarded: Served) -> None:
    for path in ("/", "/api/dataset", "/api/cards?start=0&count=1", f"/api/dataset?token={TOKEN}", "/nothing"):
        assert guarded.get(path).status == 401
        assert guarded.get(path, {"cookie": f"{COOKIE}=wrong"}).status == 401
        assert guarded.get(path, {"cookie": "a=b; =;;"}).status == 401
    assert guarded.get("/?token=wrong").status == 401
    assert guarded.get("/static/enter.js").status == 200  # it is in every copy of the package


def test_the_token_becomes_a_cookie_that_scripts_do_not_see(guarded: Served) -> None:
    answer = guarded.get(f"/?token={TOKEN}")
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert cookie == f"{COOKIE}={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert TOKEN not in answer.body.decode()  # type: ignore[attr-defined]
    assert guarded.get("/api/dataset", {"cookie": f"a=b; {COOKIE}={TOKEN}"}).status == 200


def test_files_that_are_pages_are_only_saved(hostile: Served) -> None:
    number = next(shown.number for shown in hostile.samples.shown if shown.name == "blob")
    for index in range(6):
        headers = hostile.get(f"/api/file/{index}/{number}").headers
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
        assert re.fullmatch(r"[\w.%'*=; ~-]+", headers["content-disposition"])


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.5", False), ("example.com", False)],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_a_port_that_is_taken_is_told_or_another_is_found() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match=f"can't listen on 127.0.0.1 port {port}: .*leave out --port"):
            listen("127.0.0.1", port)
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", PORT))
            taken.listen()
        except OSError:
            pass  # something else has it, which is as good
        with listen("127.0.0.1", None) as found:
            assert found.getsockname()[1] != PORT
    with pytest.raises(OSError, match=r"can't listen on 203\.0\.113\.9 port"):
        listen("203.0.113.9", None)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fastloader", "view", *map(str, arguments)]


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "x.fld", 10)
    line = command(path, "--no-browser", "--port", 0, "--token")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        match = re.fullmatch(
            r"(.+): 10 samples, shown at http://127\.0\.0\.1:(\d+)/\?token=(\S+) \(Ctrl-C ends it\)\n", said
        )
        assert match, said
        connection = HTTPConnection("127.0.0.1", int(match[2]), timeout=120)
        connection.request("GET", "/api/dataset", headers={"cookie": f"{COOKIE}={match[3]}"})
        assert json.loads(connection.getresponse().read())["total"] == 10
        os.kill(process.pid, signal.SIGINT)  # with the connection still open
        out, err = process.communicate(timeout=120)
        connection.close()
    finally:
        process.kill()
        process.wait()
    assert (out, err) == ("", "")
    assert process.returncode == 0


def test_nothing_that_is_still_at_work_is_waited_for(tmp_path: Path) -> None:
    slow = "server.check_sample = lambda *_: threading.Event().wait()"
    (tmp_path / "slow.py").write_text(f"import threading\nfrom fastloader.viewer import server\n{slow}")
    path = write_numbers(tmp_path / "x.fld", 10)
    line = [sys.executable, "-m", "fastloader", "--import", str(tmp_path / "slow.py")]
    line += ["view", str(path), "--no-browser", "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stdout is not None
        port = re.search(r":(\d+)/", process.stdout.readline())
        assert port
        connection = HTTPConnection("127.0.0.1", int(port[1]), timeout=120)
        connection.request("GET", "/api/check/1")
        other = HTTPConnection("127.0.0.1", int(port[1]), timeout=120)
        other.request("GET", "/api/dataset")  # by now the other one is at work, or about to be
        assert other.getresponse().status == 200
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(120) == 0
        connection.close()
        other.close()
    finally:
        process.kill()
        process.communicate()


def test_any_other_address_has_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[str, str | None]] = []
    opened: list[str] = []
    monkeypatch.setattr(running, "listen", lambda host, port: listen("127.0.0.1", 0))
    monkeypatch.setattr(
        running, "serve", lambda viewer, socket, host, token: (served.append((host, token)), socket.close())
    )
    monkeypatch.setattr(running, "leave", lambda: None)
    monkeypatch.setattr(running, "can_show", lambda: True)
    monkeypatch.setattr(running, "show", opened.append)
    path = str(write_numbers(tmp_path / "x.fld", 10))
    for options in ([], ["--host", "0.0.0.0"], ["--host", "192.0.2.7"], ["--token"], ["--host", "::1", "--no-browser"]):
        result = CliRunner().invoke(main, ["view", path, *options])
        assert result.exit_code == 0
        token = served[-1][1]
        assert (f"?token={token}" in result.stdout) == (token is not None)
    tokens = [token for _, token in served]
    assert [token is not None for token in tokens] == [False, True, True, True, False]
    assert len({token for token in tokens if token}) == 3
    assert all(len(token) >= 32 for token in tokens if token)
    assert len(opened) == 4
    assert opened[2].startswith("http://192.0.2.7:")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    def fails(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["view", *map(str, arguments), "--no-browser"])
        assert done.stdout == ""
        return done.exit_code, done.stderr

    path = write_numbers(tmp_path / "x.fld", 10)
    status, said = fails(tmp_path / "nothing.fld")
    assert status == 2
    assert "there is no such file" in said
    (tmp_path / "p.py").write_text("import fastloader as fl\npipelines = {'image': [fl.ops.Resize((2, 2))]}")
    status, said = fails(path, "--pipeline", tmp_path / "p.py")
    assert "there is a pipeline for 'image', which is no field; there are number, label" in said
    status, said = fails(path, "--pipeline", tmp_path / "no.py")
    assert status == 2
    with listen("127.0.0.1", 0) as taken:
        status, said = fails(path, "--port", taken.getsockname()[1])
        assert "leave out --port" in said
    assert len(said.splitlines()) == 1


def test_what_is_not_installed_is_named_with_its_cure(tmp_path: Path) -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from fastloader.cli import main; main(prog_name='fastloader')"
    line = [sys.executable, "-c", program, "view", str(write_numbers(tmp_path / "x.fld", 10)), "--no-browser"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        'fastloader: uvicorn is not installed, which the viewer needs; pip install "fastloader[view]" brings it\n'
    )
