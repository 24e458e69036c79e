"""The open loop's client, against a real socket."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.open_loop import open_loop

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def served():
    """Start a server that answers with a status after so many seconds; its port."""
    running = []

    def start(status: int, seconds: float, one_at_a_time: bool = False) -> int:
        lock = threading.Lock()

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if one_at_a_time:
                    with lock:
                        time.sleep(seconds)
                else:
                    time.sleep(seconds)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server.server_address[1]

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_every_request_is_sent_and_answered(served):
    figures = open_loop(served(200, 0.02), REQUEST, rate=50, seconds=1.0, connections=8)
    assert figures["failed"] == 0
    assert figures["rate"] == 50
    assert 20 <= figures["p50"] < 500


def test_answers_other_than_200_count_as_failed(served):
    assert open_loop(served(503, 0.0), REQUEST, rate=50, seconds=0.4)["failed"] == 20


def test_the_time_in_a_queue_counts(served):
    """50 requests in a second for a server that needs 40 ms for each: the last one waits for about a second."""
    figures = open_loop(served(200, 0.04, one_at_a_time=True), REQUEST, rate=50, seconds=1.0, connections=4)
    assert figures["p999"] > 500


def test_what_never_comes_counts_as_failed(served):
    figures = open_loop(served(200, 5.0), REQUEST, rate=10, seconds=0.5, connections=2)
    assert figures["failed"] == 5
