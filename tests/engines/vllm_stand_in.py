"""A package `vllm` with a server that answers without a model, to test vLLM's process where vLLM is not installed."""

from __future__ import annotations

from pathlib import Path

SERVER = """
import argparse, json, os, sys, time
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer

parser = argparse.ArgumentParser(prog="api_server.py")
for option in ("--uds", "--model", "--served-model-name"):
    parser.add_argument(option)
parser.add_argument("--max-num-seqs", type=int)
arguments = parser.parse_args()
if arguments.model == "broken":
    raise ValueError("no such quantization")

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "local"

    def parse_request(self):
        if not super().parse_request():
            return False
        if os.environ.get("VLLM_API_KEY") and "Authorization" not in self.headers:
            self.send_error(401)
            return False
        return True

    def do_GET(self):
        self.answer({"data": [{"id": arguments.served_model_name, "owned_by": "vllm", "max_model_len": 512}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["prompt"] == "crash":
            os._exit(1)
        if body["prompt"] == "wait":
            time.sleep(3600)
        text = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        choice = {"text": text, "finish_reason": "stop"}
        self.answer({"model": arguments.served_model_name, "choices": [choice], "usage": usage})

    def answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

Server(arguments.uds, Handler).serve_forever()
"""


def write_package(folder: Path) -> dict[str, str]:
    """Write the package. Return the environment variables with which Python finds it."""
    package = folder / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for each in (package, package.parent, package.parent.parent):
        (each / "__init__.py").touch()
    (package / "api_server.py").write_text(SERVER)
    root = str(Path(__file__).parents[2])
    return {"PYTHONPATH": f"{folder}:{root}"}
