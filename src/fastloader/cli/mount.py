"""``fastloader mount``: an archive as files in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import quiet_option
from fastloader.cli.output import complain, count, printable, say
from fastloader.cli.places import PLACE, located, not_there, settings_of, store_options

if TYPE_CHECKING:
    from fastloader.mount.shown import Shown


@click.command("mount")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False))
@click.option("--background", is_flag=True, help="Return when it is mounted, and leave a process behind.")
@click.option("--allow-other", is_flag=True, help="Let other users look too, as far as modes allow.")
@quiet_option
@store_options
def mount(archive: str, folder: str, background: bool, allow_other: bool, quiet: bool, **store: Any) -> None:
    """Show an ARCHIVE as files in DIR, to be read by any program, until Ctrl-C.

    ARCHIVE is a .fld archive, a tar (packed too), a zip or a Barecat archive, or the URL of one. DIR is made if it is
    not there. fusermount3 -u DIR, or umount DIR, unmounts it as well.
    """
    from fastloader.mount import mount as run
    from fastloader.mount import mount_in_background

    located(archive, store)
    settings = settings_of(store)
    where = f"{printable(archive)} is at {printable(folder)}"
    with not_there():
        if background:
            process = mount_in_background(archive, folder, settings, allow_other=allow_other)
            if not quiet:
                say(f"{where}; process {process} shows it until fusermount3 -u {printable(folder)}")
            return

        def ready(shown: Shown) -> None:
            if not quiet:
                say(f"{where}: {count(shown.count, 'file')}; Ctrl-C unmounts it")

        run(archive, folder, settings, allow_other=allow_other, complain=complain, ready=ready)


commands = (mount,)
