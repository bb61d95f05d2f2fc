"""The commands on archives, as a shell runs them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner, Result

from fastloader.archive import Archive
from fastloader.cli import main


def run(*arguments: object, **options: object) -> Result:
    return CliRunner().invoke(
        main, [os.fspath(one) if isinstance(one, Path) else str(one) for one in arguments], **options
    )


def good(*arguments: object, **options: object) -> str:
    done = run(*arguments, **options)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "in"
    (top / "cats").mkdir(parents=True)
    (top / "dogs" / "old").mkdir(parents=True)
    (top / "cats" / "1.txt").write_text("one")
    (top / "cats" / "2.bin").write_bytes(bytes(2000))
    (top / "dogs" / "old" / "3.txt").write_text("three")
    (top / "new\nline").write_text("odd")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).write_text("bytes")
    os.symlink("cats/1.txt", top / "link")
    os.chmod(top / "cats" / "1.txt", 0o640)
    os.utime(top / "cats" / "1.txt", ns=(0, 10**18))
    return top


@pytest.fixture
def archive(folder: Path, tmp_path: Path) -> Path:
    good("create", "-q", tmp_path / "x.fld", folder)
    return tmp_path / "x.fld"


def test_create_and_extract(folder, tmp_path):
    out = tmp_path / "x.fld"
    told = good("create", out, folder)
    assert "x.fld: 5 files, 2.0 KiB in " in told
    assert good("extract", out, tmp_path / "out").startswith(f"{tmp_path / 'out'}: 9 entries, ")
    assert subprocess.run(["diff", "-r", "--no-dereference", folder, tmp_path / "out"], check=False).returncode == 0
    assert stat.S_IMODE((tmp_path / "out/cats/1.txt").stat().st_mode) == 0o640
    assert (tmp_path / "out/cats/1.txt").stat().st_mtime_ns == 10**18
    again = run("create", out, folder)
    assert again.exit_code == 2
    assert "--force replaces it" in again.output
    good("create", "--force", "-q", out, folder)
    facts = json.loads(good("create", "--force", "--json", "-s", "500", out, folder))
    assert (facts["files"], facts["bytes"], facts["left_out"]) == (5, 2016, 0)
    assert out.is_dir()


def test_create_from_lists(folder, tmp_path):
    listed = subprocess.run(["find", ".", "-type", "f", "-print0"], cwd=folder, capture_output=True, check=True).stdout
    good("create", "-q", "-0", tmp_path / "a.fld", folder, input=listed)
    assert sorted(map(os.fsencode, Archive(tmp_path / "a.fld"))) == [
        b"cats/1.txt",
        b"cats/2.bin",
        b"dogs/old/3.txt",
        b"new\nline",
        b"\xff",
    ]
    (tmp_path / "list").write_text("cats/1.txt\n\ndogs/old/3.txt\n")
    good("create", "-q", "-T", tmp_path / "list", tmp_path / "b.fld", folder)
    assert list(Archive(tmp_path / "b.fld")) == ["cats/1.txt", "dogs/old/3.txt"]
    good(
        "create", "-q", "-T", "-", "--include", "cats", tmp_path / "c.fld", folder, input=b"cats/1.txt\ndogs/old/3.txt"
    )
    assert list(Archive(tmp_path / "c.fld")) == ["cats/1.txt"]
    gone = run("create", "-T", "-", tmp_path / "d.fld", folder, input=b"nothing\n")
    assert gone.exit_code == 2
    assert "nothing: No such file or directory; check the list" in gone.output
    assert not (tmp_path / "d.fld").exists()


def test_patterns_and_compression(folder, tmp_path):
    good("create", "-q", "--exclude", "*.bin", "--exclude", "dogs/**", tmp_path / "a.fld", folder)
    assert list(Archive(tmp_path / "a.fld")) == ["cats/1.txt", "new\nline", "\udcff"]
    good("create", "-q", "--include", "*.txt", tmp_path / "b.fld", folder)
    assert list(Archive(tmp_path / "b.fld")) == ["cats/1.txt", "dogs/old/3.txt"]
    for name, options in (("c", ["--compress", "zstd:1"]), ("d", ["--compress", "lz4"])):
        good("create", "-q", "-j", "1", *options, tmp_path / f"{name}.fld", folder)
        assert Archive(tmp_path / f"{name}.fld")["cats/2.bin"] == bytes(2000)
    good("create", "-q", tmp_path / "f.fld", folder, "--compress")
    assert all(json.loads(good("info", "--json", tmp_path / f"{name}.fld"))["compressed"] for name in "cdf")
    wrong = run("create", "--compress=nothing", tmp_path / "e.fld", folder)
    assert (wrong.exit_code, "unknown compression" in wrong.output) == (2, True)


def test_an_archive_is_not_put_into_itself(folder):
    good("create", "-q", folder / "x.fld", folder)
    good("create", "-q", "--force", folder / "x.fld", folder)
    assert "x.fld" not in Archive(folder / "x.fld")


def test_ls(archive):
    assert good("ls", archive) == "cats/\ndogs/\nlink\nnew\nline\n\udcff\n".encode("utf-8", "surrogateescape").decode(
        "utf-8", "replace"
    )
    assert good("ls", archive, "cats").split() == ["1.txt", "2.bin"]
    assert run("ls", "-0", archive).stdout_bytes == b"cats/\0dogs/\0link\0new\nline\0\xff\0"
    long = good("ls", "-lR", archive).splitlines()
    assert "-rw-r-----            3 2001-09-09 01:46:40 cats/1.txt" in long
    assert any(line.endswith(" link -> cats/1.txt") for line in long)
    assert any(line.endswith(" new\\nline") for line in long)
    facts = [json.loads(line) for line in good("ls", "--json", archive, "cats").splitlines()]
    assert facts[0] == {"path": "cats/1.txt", "kind": "file", "mode": "0640", "mtime": 1e9, "size": 3}
    assert good("ls", "--samples", archive).splitlines()[0].startswith("0  cats/1.txt  image=missing  data=3 B")
    assert good("ls", "--keys", archive).startswith("cats/1.txt\n")
    missing = run("ls", archive, "nothing")
    assert (missing.exit_code, "no entry 'nothing'" in missing.output) == (2, True)


def test_ls_of_a_dataset_takes_no_path(everything):
    for arguments in (["cats"], ["-l"], ["-R"]):
        told = run("ls", everything, *arguments)
        assert (told.exit_code, "for archives" in told.output) == (2, True)


def test_cat(archive):
    assert good("cat", archive, "cats/1.txt") == "one"
    assert good("cat", archive, "link") == "one"
    assert run("cat", archive, "cats/2.bin").stdout_bytes == bytes(2000)
    assert good("cat", archive, "cats/1.txt", "size") == "3\n"
    assert "cats/1.txt" in good("cat", archive, "0")
    for path, why in (("nothing", "no file 'nothing'"), ("cats", "is a folder")):
        told = run("cat", archive, path)
        assert (told.exit_code, why in told.output) == (2, True)


def test_tree_du_and_find(archive):
    assert good("tree", "-L", "1", archive).splitlines() == [
        ".", "├── cats/", "├── dogs/", "├── link -> cats/1.txt", "├── new\\nline", "└── \\xff", "",
        "2 folders, 3 files",
    ]  # fmt: skip
    assert "│   └── 2.bin" in good("tree", archive)
    assert good("tree", "-d", archive, "dogs").splitlines() == ["dogs", "└── old/", "", "1 folder, 0 files"]
    assert json.loads(good("tree", "--json", archive, "dogs"))[0]["children"][0]["name"] == "3.txt"
    sums = [json.loads(line) for line in good("du", "--json", "--depth", "2", archive).splitlines()]
    assert [(one["path"], one["bytes"], one["files"]) for one in sums] == [
        ("cats", 2003, 2), ("dogs/old", 5, 1), ("dogs", 5, 1), (".", 2016, 5),
    ]  # fmt: skip
    assert good("du", "-b", "--depth", "0", archive, "cats").split() == ["2003", "2", "cats"]
    assert good("find", archive, "--name", "*.txt").split() == ["cats/1.txt", "dogs/old/3.txt"]
    assert good("find", archive, "--path", "cats/**", "--size", "+1k").split() == ["cats/2.bin"]
    assert good("find", archive, "--size", "-4").split() == ["cats/1.txt", "new", "line"]
    assert good("find", archive, "--type", "d").split() == ["cats", "dogs", "dogs/old"]
    assert good("find", archive, "--type", "l").split() == ["link"]
    assert good("find", archive, "dogs").split() == ["dogs/old", "dogs/old/3.txt"]
    assert b"new\nline\0" in run("find", "-0", archive).stdout_bytes
    assert run("find", archive, "--size", "big").exit_code == 2


def test_add_rm_and_compact(archive, folder, tmp_path):
    (tmp_path / "more" / "birds").mkdir(parents=True)
    (tmp_path / "more" / "birds" / "4.txt").write_text("four")
    (tmp_path / "more" / "new\nline").write_text("newer")
    taken = run("add", archive, tmp_path / "more")
    assert taken.exit_code == 2
    assert "is in the archive already; --replace" in taken.output
    assert archive.is_file()
    good("add", "-q", "--replace", archive, tmp_path / "more")
    assert good("cat", archive, "birds/4.txt") == "four"
    assert good("cat", archive, "new\nline") == "newer"
    assert good("rm", "-n", archive, "--include", "*.bin").split() == ["cats/2.bin"]
    would = [json.loads(line) for line in good("rm", "-n", "--json", archive, "--include", "*.bin").splitlines()]
    assert [(one["path"], one["kind"], one["size"]) for one in would] == [("cats/2.bin", "file", 2000)]
    assert "2 removed" in good("rm", archive, "cats/2.bin", "link")
    refused = run("rm", archive, "dogs")
    assert (refused.exit_code, "-r removes what is in it" in refused.output) == (2, True)
    good("rm", "-q", "-r", archive, "dogs")
    assert list(Archive(archive)) == ["birds/4.txt", "cats/1.txt", "new\nline", "\udcff"]
    assert run("rm", archive, "nothing").exit_code == 2
    assert run("rm", archive).exit_code == 2
    assert json.loads(good("compact", "--json", archive))["bytes"] > 2000
    assert good("compact", archive).endswith("nothing to do\n")
    assert "4 samples in 2 shards" in good("verify", archive)


def test_merge_subset_and_reshard(archive, tmp_path):
    good("subset", "-q", tmp_path / "a.fld", archive, "cats")
    good("subset", "-q", "--exclude", "cats", tmp_path / "b.fld", archive)
    assert run("subset", tmp_path / "c.fld", archive).exit_code == 2
    good("merge", "-q", tmp_path / "c.fld", tmp_path / "b.fld", tmp_path / "a.fld")
    assert (tmp_path / "c.fld").read_bytes() == archive.read_bytes()
    twice = run("merge", tmp_path / "d.fld", archive, tmp_path / "a.fld")
    assert (twice.exit_code, "--duplicates first or last chooses one" in twice.output) == (2, True)
    facts = json.loads(good("merge", "--json", "--duplicates", "last", tmp_path / "d.fld", archive, tmp_path / "a.fld"))
    assert facts["files"] == 5
    good("reshard", "-q", "-s", "1k", tmp_path / "e.fld", archive)
    assert len(list((tmp_path / "e.fld").glob("shard-*"))) > 1
    good("reshard", "-q", tmp_path / "f.fld", tmp_path / "e.fld")
    assert (tmp_path / "f.fld").read_bytes() == archive.read_bytes()


def test_extract_refuses_what_leads_out(tmp_path):
    os.makedirs(tmp_path / "in")
    os.symlink("/etc", tmp_path / "in" / "etc")
    good("create", "-q", tmp_path / "x.fld", tmp_path / "in")
    told = run("extract", tmp_path / "x.fld", tmp_path / "out")
    assert told.exit_code == 1
    assert "leads out of the folder, to '/etc'; leave it out with --exclude, or make it with --any-links" in told.output
    good("extract", "-q", "--exclude", "etc", tmp_path / "x.fld", tmp_path / "out2")
    good("extract", "-q", "--any-links", tmp_path / "x.fld", tmp_path / "out3")
    assert os.readlink(tmp_path / "out3" / "etc") == "/etc"


def test_files_that_would_lend_rights_are_extracted_without_them_unless_asked_for(tmp_path):
    os.makedirs(tmp_path / "in" / "shared")
    for name, mode in (("run", 0o4755), ("group", 0o2750), ("plain", 0o755), ("shared", 0o2775)):
        if name != "shared":
            (tmp_path / "in" / name).write_bytes(b"#!")
        os.chmod(tmp_path / "in" / name, mode)

    def modes(folder: str) -> dict[str, int]:
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / folder).iterdir()}

    for command, place in (("extract", "x.fld"), ("convert", "y.fld"), ("convert", "x.tar")):
        good("convert", "-q", "--archive", tmp_path / "in", tmp_path / place)
        told = run(command, "-q", tmp_path / place, f"{tmp_path}/out-{place}/")
        assert told.exit_code == 0, told.output
        assert "run: its setuid and setgid bits are left out; --set-ids keeps them" in told.output
        assert "plain" not in told.output
        assert modes(f"out-{place}") == {"run": 0o755, "group": 0o750, "plain": 0o755, "shared": 0o2775}
        good(command, "-q", "--set-ids", tmp_path / place, f"{tmp_path}/all-{place}/")
        assert modes(f"all-{place}") == modes("in")
    assert run("convert", "--set-ids", tmp_path / "x.fld", tmp_path / "x.zip").exit_code == 2


def test_extract_some(archive, tmp_path):
    good("extract", "-q", archive, tmp_path / "out", "cats/*.txt")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["cats", "1.txt"]
    assert run("extract", archive, tmp_path / "out", "cats/1.txt").exit_code == 2
    good("extract", "-q", "--overwrite", archive, tmp_path / "out", "cats/1.txt")
    assert run("extract", archive, tmp_path / "none", "*.nothing").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["find", "x.fld", "--path", "[z-a]"], "[z-a]: no pattern of paths"),
        (["find", "x.fld", "--name", "[z-a]"], "[z-a]: no pattern of paths"),
        (["create", "s3://", "in"], "names no bucket"),
        (["convert", "--archive", "x.fld", "y.tar.xz"], "y.tar.xz: such archives are not written"),
        (["convert", "--archive", "x.fld", "y.parquet"], "y.parquet: such archives are not written"),
    ],
)
def test_wrong_usage_is_told_and_makes_nothing(archive, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    told = run(*arguments)
    assert (told.exit_code, said in told.output) == (2, True)
    assert sorted(os.listdir()) == ["in", "x.fld"]


def test_every_pattern_that_is_given_fits_something(archive, tmp_path):
    for patterns in (
        ["cats", "*.nothing"],
        ["cats/1.txt", "cats/9.txt"],
        ["1.txt", "9.txt"],
        ["cats", "dogs/old/**", "9"],
    ):
        for command in (["extract", archive, tmp_path / "out"], ["subset", tmp_path / "out", archive]):
            told = run(*command, *patterns)
            assert told.exit_code == 2
            assert f"nothing fits {patterns[-1]!r}; " in told.output
            assert not (tmp_path / "out").exists()
    good("extract", "-q", archive, tmp_path / "out", "1.txt", "dogs/", "new*", "cats/[2]*")
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert found == ["cats/1.txt", "cats/2.bin", "dogs/old/3.txt", "new\nline"]


def test_names_with_brackets_are_given_as_they_are(tmp_path):
    (tmp_path / "in" / "a[1]").mkdir(parents=True)
    for name in ("a[1]/b[2].txt", "b2.txt", "b3.txt"):
        (tmp_path / "in" / name).write_text(name)
    good("create", "-q", tmp_path / "x.fld", tmp_path / "in")
    for pattern, wanted in (("a[1]/b[2].txt", ["a[1]/b[2].txt"]), ("b[2].txt", ["a[1]/b[2].txt", "b2.txt"])):
        good("subset", "-q", "--force", tmp_path / "y.fld", tmp_path / "x.fld", pattern)
        assert list(Archive(tmp_path / "y.fld")) == wanted
    good("create", "-q", "--exclude", "a[1]", tmp_path / "z.fld", tmp_path / "in")
    assert list(Archive(tmp_path / "z.fld")) == ["b2.txt", "b3.txt"]


def test_a_list_of_a_link_and_of_what_lies_below_it_is_refused(tmp_path):
    (tmp_path / "in" / "real").mkdir(parents=True)
    (tmp_path / "in" / "real" / "x").write_text("x")
    (tmp_path / "in" / "link-2").write_text("between them")
    os.symlink("real", tmp_path / "in" / "link")
    (tmp_path / "list").write_text("link\nlink-2\nlink/x\n")
    told = run("create", "-T", tmp_path / "list", tmp_path / "x.fld", tmp_path / "in")
    assert told.exit_code == 2
    assert "the list has 'link/x' and the link 'link'" in told.output
    assert not (tmp_path / "x.fld").exists()
    (tmp_path / "list").write_text("link-2\nlink/x\n")
    good("create", "-q", "-T", tmp_path / "list", tmp_path / "x.fld", tmp_path / "in")
    good("extract", "-q", tmp_path / "x.fld", tmp_path / "out")
    assert (tmp_path / "out" / "link" / "x").read_text() == "x"


@pytest.mark.parametrize("command", ["extract", "add", "tree", "du", "find", "rm", "compact", "ls", "cat"])
def test_what_is_not_there_and_what_is_no_archive(tmp_path, everything, command):
    more = {"extract": [tmp_path / "out"], "add": [tmp_path], "rm": ["x"], "cat": ["x"]}.get(command, [])
    assert run(command, tmp_path / "nothing.fld", *more).exit_code == 2
    if command not in ("ls", "cat", "compact"):
        told = run(command, everything, *more)
        assert told.exit_code == 1
        assert "is a dataset and no archive" in told.output


def test_verify_finds_what_is_wrong_with_an_archive(archive):
    data = bytearray(archive.read_bytes())
    data[data.index(b"three")] ^= 1
    archive.write_bytes(data)
    told = run("verify", archive)
    assert told.exit_code == 1
    assert "field 'data': the payload is damaged" in told.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, tmp_path):
    script = good("completion", shell)
    assert "_FASTLOADER_COMPLETE" in script
    if shell == "bash" and shutil.which("bash"):
        (tmp_path / "script").write_text(script)
        subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)
    command = Path(sys.executable).with_name("fastloader")
    asked = {"_FASTLOADER_COMPLETE": "bash_complete", "COMP_WORDS": "fastloader cre", "COMP_CWORD": "1"}
    done = subprocess.run([command], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert "create" in done.stdout
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        "create ", "create x.fld ", "create -T ", "add ", "extract ", "extract x.fld ", "ls ", "cat ", "verify ",
        "tree ", "du ", "find ", "merge ", "merge x.fld ", "merge x.fld y.fld ", "subset x.fld ", "reshard x.fld ",
        "rm ", "compact ", "convert ", "convert x.tar ", "index ", "mount ", "store put ", "log ",
    ],
)  # fmt: skip
def test_paths_are_completed_by_the_shell(words):
    *before, last = words.split(" ")
    shell = get_completion_class("bash")(main, {}, "fastloader", "_FASTLOADER_COMPLETE")
    assert [item.type for item in shell.get_completions(before, last)] in (["file"], ["dir"])


@pytest.mark.parametrize("command", sorted(main.commands))
def test_a_command_alone_says_what_it_needs(command):
    told = run(command)
    assert told.exit_code in (0, 2)
    assert told.exception is None or isinstance(told.exception, SystemExit)


@pytest.mark.parametrize("options", [[], ["-s", "4K"]], ids=str)
def test_an_archive_made_in_its_own_folder_holds_nothing_of_itself(run, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for i in range(6):
        (tmp_path / "sub" / f"{i}.bin").write_bytes(bytes(3000))
    for _ in range(2):  # the second replaces the first
        assert run("create", "--force", *options, "sub/x.fld", ".").exit_code == 0
        assert list(Archive("sub/x.fld")) == [f"sub/{i}.bin" for i in range(6)]
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a").write_bytes(b"a")
    (tmp_path / "more" / "x.fld").symlink_to("../sub/x.fld")
    assert run("add", "sub/x.fld", "more").exit_code == 0
    assert sorted(Archive("sub/x.fld"))[0] == "a"


def test_find_tells_of_hard_links_and_of_a_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_bytes(b"1234")
    os.link(tmp_path / "in" / "f", tmp_path / "in" / "g")
    good("create", "-q", tmp_path / "x.fld", tmp_path / "in")
    assert good("find", tmp_path / "x.fld", "--type", "f") == "f\ng\n"
    assert good("find", tmp_path / "x.fld", "--size", "4") == "f\ng\n"
    assert good("find", tmp_path / "x.fld", "--type", "h") == "g\n"
    assert good("find", tmp_path / "x.fld", "f") == "f\n"
    assert json.loads(good("find", "--json", tmp_path / "x.fld", "g"))["size"] == 4


@pytest.mark.parametrize(("given", "codec"), [(["--compress"], "zstd"), (["--compress", "lz4"], "lz4"),
                                              (["--compress", "zstd:9"], "zstd"), (["--compress=lz4"], "lz4"),
                                              (["--compress", "none"], "none")])  # fmt: skip
def test_compress_takes_a_codec_and_nothing_else(tmp_path, given, codec):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"a" * 5000)
    good("create", "-q", *given, tmp_path / "x.fld", tmp_path / "in")
    good("create", "-q", tmp_path / "y.fld", tmp_path / "in", *given)
    for name in ("x.fld", "y.fld"):
        fields = {field["name"]: field for field in json.loads(good("info", "--json", tmp_path / name))["fields"]}
        assert fields["data"]["compression"].startswith(codec)
    (tmp_path / "in" / "b").write_bytes(b"b")
    (tmp_path / "in" / "a").unlink()
    good("add", "-q", "--compress", tmp_path / "x.fld", tmp_path / "in")
    assert run("create", "--compress=gzip", tmp_path / "z.fld", tmp_path / "in").exit_code == 2


def test_patterns_that_fit_nothing_make_no_archive(archive, folder, tmp_path):
    for told in (
        run("subset", tmp_path / "y.fld", archive, "*.nothing"),
        run("create", "--include", "*.nothing", tmp_path / "y.fld", folder),
        run("add", "--include", "*.nothing", archive, folder),
    ):
        assert (told.exit_code, "nothing fits" in told.output) == (2, True)
    assert not (tmp_path / "y.fld").exists()
    good("subset", "-q", "--exclude", "*", tmp_path / "y.fld", archive)  # all that is left was asked for


def test_a_list_may_have_absolute_names(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    some = next(path for path in sorted(folder.rglob("*")) if path.is_file())
    (tmp_path / "list").write_bytes(b"\0".join(map(os.fsencode, (folder, some))))
    good("create", "-q", "-0", "-T", tmp_path / "list", tmp_path / "y.fld", folder.name)
    assert good("ls", "-R", tmp_path / "y.fld") == f"{some.relative_to(folder)}\n"
    (tmp_path / "list").write_bytes(b"/etc/hostname")
    told = run("create", "-T", tmp_path / "list", tmp_path / "z.fld", folder.name)
    assert (told.exit_code, "names are relative to it" in told.output) == (2, True)
    assert not (tmp_path / "z.fld").exists()


def test_a_tar_that_is_not_there_is_no_damage(tmp_path):
    told = run("index", tmp_path / "nope.tar")
    assert (told.exit_code, "nope.tar" in told.output) == (2, True)
