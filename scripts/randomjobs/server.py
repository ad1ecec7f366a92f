"""A server with OpenAI's API for chats: it answers with the value of the prompt."""

import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "kernels"))
from outcome import value  # noqa: E402


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        time.sleep(random.uniform(0, 0.02))
        if random.random() < 0.02:
            return self.answer(503, {"error": {"message": "busy"}})
        do, _, text = prompt.partition(":")
        if do in ("fail", "crash") and not body.get("fixed"):
            return self.answer(400, {"error": {"message": "rejected"}})
        message = {"role": "assistant", "content": str(value(text))}
        return self.answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 3}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def start():
    """Starts the server in a thread. Returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
