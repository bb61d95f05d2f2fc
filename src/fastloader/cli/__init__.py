"""The command line: look into datasets and check them. ``docs/reference/cli.md`` describes it."""

from __future__ import annotations

import click

from fastloader import __version__
from fastloader.cli.imports import import_module
from fastloader.cli.program import Commands, Program

__all__ = ["main"]


_OVERVIEW = """Make .fld datasets and archives, look into them and check them.

A DATASET is a .fld file or a folder of shards, or the URL of one in a store, like s3://bucket/train.fld.

\b
fastloader info train.fld             what is in it
fastloader ls train.fld               its samples, a line each
fastloader cat train.fld 0 image      one value, as it is stored
fastloader view train.fld             a page in the browser that shows it
fastloader verify train.fld           is everything intact?
fastloader bench train.fld            how fast does it load, and what limits?
fastloader doctor train.fld           what bounds loading on this machine, and what to change?
fastloader simulate train.fld         what would each of N ranks read? from tables alone
fastloader convert train.fld a.tar    to tar or Parquet, and from other formats
fastloader index shards/*.tar         where samples of tars lie, found once
fastloader store ls s3://bucket/      objects in stores; get, put, cp, rm

A dataset can change; every state of it stays readable.

\b
fastloader delete train.fld --where "label == 3"     samples taken out; update gives new values
fastloader columns add train.fld score --type float scores.npy    a column beside the shards; rename, drop
fastloader log train.fld              its snapshots; compact and gc give back room

An archive is a folder in one .fld file, with every path, and a dataset as well.

\b
fastloader create photos.fld photos/  a folder into an archive; add, merge, subset, reshard
fastloader extract photos.fld out/    and back
fastloader ls -lR photos.fld          what is in it; tree, du, find, cat, verify
fastloader rm photos.fld a.jpg        take files out; compact gives back the room
fastloader mount photos.fld view/     as files in a folder, read-only; tars and zips too

A field type of your own is known to the commands when the module that registers it is imported:

\b
fastloader --import my_fields.py cat train.fld 0

Exit status: 0 all good, 1 something is damaged, 2 wrong usage or nothing of that name.
"""


_COMMANDS = Commands(
    {
        "info": ("info",), "ls": ("ls",), "cat": ("cat",), "view": ("view",), "verify": ("verify",),
        "bench": ("bench",), "doctor": ("doctor",), "simulate": ("simulate",), "convert": ("convert",),
        "index": ("index",),
        "store": ("store",), "create": ("create", "add"), "extract": ("extract",), "browse": ("tree", "du", "find"),
        "edit": ("merge", "subset", "reshard", "rm", "compact"),
        "living": ("columns", "delete", "update", "log", "gc"), "mount": ("mount",), "completion": ("completion",),
    }
)  # fmt: skip


@click.group(cls=Program, commands=_COMMANDS, help=_OVERVIEW, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fastloader", message="%(prog)s %(version)s")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE",
    help="Import this module, or this .py file, first; may be given again.",
)  # fmt: skip
def main(modules: tuple[str, ...]) -> None:
    """Run a command."""
    for module in modules:
        import_module(module)
