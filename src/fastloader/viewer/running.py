"""Starting and ending the server."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from types import FrameType

import uvicorn

from fastloader.errors import StoreError
from fastloader.viewer.guard import Guard
from fastloader.viewer.server import make_app
from fastloader.viewer.showing import Viewer

PORT = 8417


class _Server(uvicorn.Server):
    """Ends at once when it is told to: nothing here is worth waiting for."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self.force_exit = True


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens on a port; without one on ours or, where that is taken, on any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (PORT, 0) if port is None else (port,):
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host.strip("[]"), number))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            if number == PORT and port is None:
                continue
            hint = "leave out --port to get one that is free" if port else "check --host"
            raise StoreError(f"can't listen on {host} port {number}: {error.strerror or error}", hint=hint) from error
    raise AssertionError("a free port is always found or refused")


def address(listening: socket.socket, host: str, token: str | None) -> str:
    """What to open in a browser."""
    port = listening.getsockname()[1]
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def server_of(viewer: Viewer, host: str, token: str | None) -> uvicorn.Server:
    """The server, not yet running."""
    app = Guard(make_app(viewer), host, token)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, ws="none", lifespan="off", http="h11",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    return _Server(config)


def serve(viewer: Viewer, listening: socket.socket, host: str, token: str | None) -> None:
    """Until it is told to end."""
    try:
        server_of(viewer, host, token).run(sockets=[listening])
    finally:
        viewer.close()
        listening.close()


def leave() -> None:
    """End the program where threads still decode what nobody waits for any more; else they would be waited for."""
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def can_show() -> bool:
    """Whether there is a screen on which a browser would appear, rather than one that takes over the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def show(url: str) -> None:
    """Open it in a browser, without waiting for it."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
