"""The seam to C++: the stub says what the module has, one Python file imports it, one C++ folder knows Python."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from fastloader import _native, kernels

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fastloader"

Signature = tuple[list[str], list[str]]


def signature(node: ast.FunctionDef) -> Signature:
    """Argument names, and the defaults of the last of them."""
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return names, [ast.unparse(default) for default in arguments.defaults]


def members(body: list[ast.stmt], prefix: str = "") -> dict[str, Signature | str]:
    """Functions, classes, methods and properties of a stub, by dotted name."""
    found: dict[str, Signature | str] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
            found[prefix + node.name] = "property" if is_property else signature(node)
        elif isinstance(node, ast.ClassDef):
            found[prefix + node.name] = "class of " + ", ".join(map(ast.unparse, node.bases))
            found |= members(node.body, f"{prefix}{node.name}.")
    return found


def test_the_stub_describes_the_module(tmp_path):
    made = tmp_path / "made.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "fastloader._native", "-o", str(made)], check=True
    )
    real = members(ast.parse(made.read_text()).body)
    written = members(ast.parse((SOURCE / "_native.pyi").read_text()).body)
    assert written == real


def test_the_stub_has_every_public_name():
    written = {name for name in members(ast.parse((SOURCE / "_native.pyi").read_text()).body) if "." not in name}
    assert written == {name for name in vars(_native) if not name.startswith("_")}


def test_the_door_lists_what_it_opens():
    assert all(hasattr(kernels, name) for name in kernels.__all__)


def imports(path: Path) -> set[str]:
    """Every module a file imports, whether at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def test_only_kernels_imports_the_native_module():
    importers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(name.split(".")[-1] == "_native" or "._native." in name for name in imports(path))
    }
    assert importers == {"kernels.py"}


def test_only_the_bindings_know_python():
    including = re.compile(r'^\s*#\s*include\s*[<"](?:nanobind/|Python\.h)', re.MULTILINE)
    native = ROOT / "native"
    sources = [p for p in native.rglob("*") if p.suffix in {".cc", ".h", ".cpp", ".hpp"}]
    knowing = {p.relative_to(native).as_posix() for p in sources if including.search(p.read_text())}
    assert {path.split("/")[0] for path in knowing} == {"bind"}


def test_importing_loads_nothing_that_is_not_used():
    asked = "import sys, fastloader; print([name for name in sys.modules if name.startswith(('fastloader.', 'numpy'))])"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_is_there_and_no_module_hides_one():
    asked = (
        "import pkgutil, fastloader as fl\n"
        "modules = {one.name for one in pkgutil.iter_modules(fl.__path__)}\n"
        "assert modules & set(fl.__all__) == {'ops'}, modules & set(fl.__all__)\n"
        "assert all(getattr(fl, name) is not None for name in fl.__all__)\n"
        "assert set(fl.__all__) <= set(dir(fl))\n"
    )
    subprocess.run([sys.executable, "-c", asked], check=True)
