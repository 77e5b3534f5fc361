"""A page in the browser with the figures of a cluster: a small server of HTTP, for this machine unless told otherwise."""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Self

from toroid._errors import OptionError
from toroid._status import Status

#: Seconds for a request.
PATIENCE = 10.0
#: What the page may do: what stands in it, and asking the server that it came from.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Board:
    """Serves a page that shows figures, until it is closed.

    Whoever reaches the address sees the figures, which have names of drives, tables and reasons of failures, but no rows, keys or secrets. There is no
    authentication, so the address is one of this machine unless another is given.

    Args:
        status: Gives the figures of now. It is called in other threads, several times at once.
        host: The address to listen on.
        port: The port; a free one if it is 0.

    Raises:
        OptionError: Nothing can listen there: another process does, or the address is of another machine.
    """

    def __init__(self, status: Callable[[], Status], host: str = "127.0.0.1", port: int = 0) -> None:
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise OptionError(f"no page can be served at {host}:{port}: {getattr(error, 'strerror', error)}") from error
        self._server.status = status
        self._thread = threading.Thread(target=self._server.serve_forever, name="toroid-board", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def close(self) -> None:
        """Serves no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Board: {self.url}>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: Callable[[], Status]


def page() -> str:
    """The page: one file for drives and clusters, which asks for `status` beside itself."""
    return files("toroid").joinpath("_live.html").read_text(encoding="utf-8")


def _is_own(name: str, bound: str) -> bool:
    """Whether a request's Host may be that of a server of this machine: a site elsewhere whose name leads here (DNS rebinding) has another one."""
    if not ipaddress.ip_address(bound).is_loopback:
        return True
    host = name.rsplit(":", 1)[0] if name.count(":") == 1 or name.startswith("[") and "]:" in name else name
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version = "toroid"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        code, kind, body = self._found()
        content = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _found(self) -> tuple[HTTPStatus, str, str]:
        if not _is_own(self.headers.get("Host", "localhost"), str(self.server.server_address[0])):
            return HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "expected the Host localhost or an IP address\n"
        match self.path.split("?", 1)[0]:
            case "/":
                return HTTPStatus.OK, "text/html", page()
            case "/status":
                try:
                    return HTTPStatus.OK, "application/json", json.dumps(self.server.status().to_json())
                except Exception as error:  # noqa: BLE001
                    return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n"
        return HTTPStatus.NOT_FOUND, "text/plain", "expected / or /status\n"

    def log_message(self, format: str, *arguments: object) -> None:
        """Writes nothing: the process has an output of its own."""
