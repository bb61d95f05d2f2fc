"""``python -m fastloader`` is the ``fastloader`` command."""

from fastloader.cli import main

if __name__ == "__main__":
    main(prog_name="fastloader")
