"""A plain web server that gives ranges, as any server of static files does."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    etags = False

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return None
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        begin, end = 0, len(data)
        if asked:
            begin, end = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
            if begin >= len(data):
                self.send_error(416)
                return None
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        if self.etags:
            self.send_header("ETag", f'"{zlib.crc32(data):08x}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[begin:end])
        return None


@contextlib.contextmanager
def web_server(folder: Path, etags: bool = False) -> Iterator[str]:
    """Serve a folder; gives the URL. With ``etags``, a file that changes within a second is told too."""
    kind = type("Handler", (_Handler,), {"etags": etags})

    def handler(*args: Any) -> Any:
        return kind(*args, directory=str(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
