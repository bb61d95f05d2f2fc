"""Runs benchmarks: ``python bench/run.py [TOPIC | TOPIC/NAME ...] [--save]``. Each prints ratios of one run.

A benchmark is a file ``bench/<topic>/bench_<name>.py`` with a ``main() -> list[Result]``. ``--save`` keeps the table of
a whole topic, with the machine named, in ``bench/<topic>/results.md``, followed by what a benchmark's
``appendix(folder)`` gives. Of several topics each has a process of its own: their folders have files of the same names.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from common import Result, machine  # noqa: E402


def load(path: Path) -> ModuleType:
    """A benchmark's module, whatever folder it is in."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(results: list[Result]) -> str:
    """A Markdown table of what was measured, against what, and the goal."""
    lines = ["| what | against | ratio | goal | details |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.what} | {r.against} | {r.ratio:.2f} | {r.goal} | {r.details} |" for r in results]
    return "\n".join(lines)


def main() -> None:
    """Run the chosen topics."""
    files = sorted(HERE.glob("*/bench_*.py"))
    topics = {
        name: [path for path in files if path.parent.name == name] for name in {path.parent.name for path in files}
    }
    known = {f"{path.parent.name}/{path.stem.removeprefix('bench_')}": [path] for path in files} | topics
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", metavar="TOPIC", help=f"all by default: {', '.join(sorted(known))}")
    parser.add_argument("--save", action="store_true", help="keep the results in bench/<topic>/results.md")
    parser.add_argument("--peers", metavar="NAMES", help="make the environments of these, or of all, and measure them")
    options = parser.parse_args()
    if options.peers:
        os.environ["FASTLOADER_BENCH_PEERS"] = options.peers
    unknown = set(options.chosen) - set(known)
    if unknown:
        parser.error(f"no such topic: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    if options.save and set(options.chosen) - set(topics):
        parser.error("--save keeps the results of whole topics")
    chosen = options.chosen or sorted(topics)
    if len(chosen) == 1:
        return run(chosen[0], known[chosen[0]], save=options.save)
    more = ["--save"] if options.save else []
    commands = {one: [sys.executable, str(Path(__file__).resolve()), one, *more] for one in chosen}
    failed = [one for one, command in commands.items() if subprocess.run(command).returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(chosen: str, paths: list[Path], *, save: bool) -> None:
    """Run the benchmarks of one topic, or one of them."""
    topic = chosen.partition("/")[0]
    print(machine())
    results: list[Result] = []
    modules = [load(path) for path in paths]
    for module in modules:
        print(f"\n{topic}/{Path(module.__file__ or '').name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        found = module.main()
        print(table(found), flush=True)
        results += found
    if save:
        text = f"# {topic}\n\n{machine()}\n\nCommand: `python bench/run.py {topic} --save`\n\n{table(results)}\n"
        text += "".join(f"\n{module.appendix(HERE / topic)}\n" for module in modules if hasattr(module, "appendix"))
        (HERE / topic / "results.md").write_text(text)


if __name__ == "__main__":
    main()
