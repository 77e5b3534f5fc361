"""Figures of clusters and served drives: as text, as HTML, on a page, and watched."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import toroid
from toroid._board import Board
from toroid._status import ClusterStatus, DriveStatus, JobStatus, ServedStatus

CLUSTER = ClusterStatus(
    drives=[
        DriveStatus("nvme+tcp://10.0.0.7:4420/nqn.a", state="computing", work="staff", rows=(128, 192), seconds=2.5, rows_done=1280, units_done=10),
        DriveStatus("b.img", state="silent", failures=2, reason="<b>no\x1b[31m route</b>"),
        DriveStatus("node-3", role="compute"),
    ],
    jobs=[
        JobStatus(
            "staff", rows=100_000, rows_done=1280, units_waiting=9, units_running=1, units_done=10, retries=2, stolen=1, seconds=75, seconds_left=5400
        )
    ],
    seconds=80.0,
)

DRIVE: dict[str, Any] = {
    "subsystem": "nqn.a",
    "nsid": 1,
    "read_only": False,
    "rows": 100,
    "bootstraps": 1000,
    "pages_in": 0,
    "pages_out": 4,
    "media_errors": 0,
    "programs": {"running": 1, "waiting": 2, "ran": 3, "failed": 1},
    "memory": {"samples_bytes": 1 << 20, "samples_limit": 64 << 20, "swapped_bytes": 0, "keys_bytes": 92 << 20, "keys_limit": 4 << 30},
    "space": {"bytes": 8 << 30, "used_bytes": 1 << 30, "free_bytes": None},
    "running": [{"program": "prg:0", "host": "nqn.h", "rows": 64, "rows_done": 16, "bootstraps_done": 32, "seconds": 4.0, "seconds_left": 12.0}],
    "hosts": [{"host": "nqn.h", "programs": 3, "rows": 100, "bootstraps": 1000, "read_bytes": 5, "written_bytes": 4096, "failures": 1}],
    "errors": [{"count": 1, "status": "vendor 0xC3", "reason": "no program"}],
}
SERVED: dict[str, Any] = {
    "kind": "drive",
    "version": "0.1.0",
    "uptime_seconds": 10.0,
    "ok": True,
    "stopping": False,
    "connections": {"now": 2, "controllers": 1, "bytes": 0, "accepted": 2, "refused": 0, "failed": 0},
    "commands": {"in_flight": 1, "abandoned": 0, "read_bytes": 5, "written_bytes": 4096},
    "memory": {"process_bytes": 300 << 20},
    "bootstraps": {"waiting": 0, "batches": 1, "batched": 0},
    "drives": [DRIVE],
}


def later() -> dict[str, Any]:
    return {**SERVED, "uptime_seconds": 12.0, "drives": [{**DRIVE, "rows": 150, "bootstraps": 1400}]}


def asked(url: str, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    place = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(place, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}


@pytest.fixture
def served() -> Iterator[tuple[str, list[Any]]]:
    """A server that answers with the bodies of a list, the last one again and again."""
    bodies: list[Any] = [SERVED, later()]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
            text = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(200 if self.path == "/status" else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}", bodies
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_cluster_has_a_text_and_a_table() -> None:
    text = str(CLUSTER)
    assert text.startswith("1 of 3 drives and nodes compute")
    assert "1,280 of 100,000 (1 %)" in text
    assert "1 h 30 min" in text
    assert "staff 128..192" in text
    assert str(replace(CLUSTER, simulated=True)).startswith("1 of 3 drives and nodes compute, simulated")
    table = CLUSTER._repr_html_()
    assert table.count("<table>") == table.count("</table>") == 2
    # What a drive says steers neither a terminal nor a notebook.
    assert "\x1b" not in text
    assert "&lt;b&gt;no" in table
    assert "<b>" not in table


def test_the_figures_of_a_cluster_survive_json() -> None:
    figures = json.loads(json.dumps(CLUSTER.to_json()))
    assert figures["kind"] == "cluster"
    assert figures["drives"][0]["rows"] == [128, 192]
    assert figures["jobs"][0]["seconds_left"] == 5400


def test_a_board_shows_the_page_and_the_figures_and_nothing_else() -> None:
    now = [CLUSTER]
    with Board(lambda: now[0]) as board:
        code, page, headers = asked(board.url, "/")
        assert code == 200
        assert page.startswith("<!doctype html>")
        # Nothing comes from elsewhere.
        assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "default-src 'none'" in headers["content-security-policy"]
        code, text, headers = asked(board.url, "/status")
        assert (code, headers["cache-control"], headers["content-type"]) == (200, "no-store", "application/json; charset=utf-8")
        assert json.loads(text) == json.loads(json.dumps(CLUSTER.to_json()))
        assert "access-control-allow-origin" not in headers
        assert [asked(board.url, path)[0] for path in ("/..%2fpasswd", "/status/", "/metrics")] == [404, 404, 404]
        # A site whose name leads to this machine reads nothing.
        assert asked(board.url, "/status", Host="evil.example")[0] == 421
        assert [asked(board.url, "/status", Host=name)[0] for name in ("localhost:80", "127.0.0.1", "[::1]:9")] == [200, 200, 200]
        now.clear()
        assert asked(board.url, "/status")[0] == 500
    with pytest.raises(ConnectionRefusedError):
        asked(board.url, "/")


def test_a_page_where_nothing_can_listen_is_refused_by_name() -> None:
    with Board(lambda: CLUSTER) as board:
        port = int(board.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(toroid.OptionError, match=f"127.0.0.1:{port}: Address already in use"):
            Board(lambda: CLUSTER, port=port)
    with pytest.raises(toroid.OptionError, match="nowhere.invalid:0"):
        Board(lambda: CLUSTER, "nowhere.invalid")
    with pytest.raises(toroid.OptionError, match="99999: bind"):
        Board(lambda: CLUSTER, port=99999)


def test_a_served_drive_is_asked_for_its_figures(served: tuple[str, list[Any]]) -> None:
    place, bodies = served
    found = toroid.status(place)
    assert found.figures == SERVED
    assert "serving for 10.0 s" in str(found)
    assert "16 of 64 (25 %)" in str(found)
    assert "vendor 0xC3" in found._repr_html_()
    assert found.rate(0, "rows") is None
    bodies[:] = ["no JSON"]
    with pytest.raises(toroid.DriveError, match="no figures of a drive"):
        toroid.status(place)
    bodies[:] = [{"kind": "cluster"}]
    with pytest.raises(toroid.DriveError, match="no figures of a drive"):
        toroid.status(f"http://{place}/")
    with pytest.raises(toroid.DriveError, match="does not answer"):
        toroid.status(f"http://{place}/elsewhere")
    with pytest.raises(ValueError, match="no address of metrics"):
        toroid.status("nvme+tcp://127.0.0.1:4420/nqn.a")


def test_watching_shows_rates_and_goes_on_when_there_is_no_answer(served: tuple[str, list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    place, bodies = served
    last = toroid.watch(place, interval=0.01, count=2)
    assert isinstance(last, ServedStatus)
    assert (last.rate(0, "rows"), last.rate(0, "bootstraps")) == (25.0, 200.0)
    assert "200.0" in capsys.readouterr().out
    bodies[:] = [SERVED, "gone"]
    last = toroid.watch(place, interval=0.01, count=3)
    assert last is not None
    assert last.to_json() == SERVED
    shown = capsys.readouterr().out
    assert shown.count("no answer for") == 2
    assert "before that:" in shown
    with pytest.raises(ValueError, match="more than 0"):
        toroid.watch(place, interval=0)


def test_a_server_that_was_started_again_has_no_rate() -> None:
    assert ServedStatus(SERVED, later()).rate(0, "rows") is None


def test_a_cluster_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    class Cluster:
        def status(self) -> ClusterStatus:
            return CLUSTER

    assert toroid.watch(Cluster(), count=1) is CLUSTER
    assert "1 of 3 drives" in capsys.readouterr().out


def test_looks_have_times_and_a_number() -> None:
    for options in ({"interval": "x"}, {"count": "x"}):
        with pytest.raises(TypeError, match="interval is a number of seconds"):
            toroid.watch("127.0.0.1:1", **options)  # type: ignore[arg-type]
    for interval in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="more than 0 seconds"):
            toroid.watch("127.0.0.1:1", interval=interval)


def test_what_has_no_figures_is_refused() -> None:
    for address in (None, 1.5, True):
        with pytest.raises(TypeError, match="HOST:PORT, a port or a URL"):
            toroid.status(address)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a cluster, not object"):
        toroid.watch(object(), count=1)  # type: ignore[arg-type]
