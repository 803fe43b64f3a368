"""What the tests of the server share: a server that is always stopped, requests over plain sockets, TAP."""
import array
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOOL = os.path.abspath(os.environ.get("WIDEOUT", "build/wideout"))
GOLDEN = "tests/golden/"
counts = {"ok": 0, "failed": 0}


def check(name, fine, detail=""):
    counts["ok" if fine else "failed"] += 1
    print(("ok " if fine else "not ok ") + str(sum(counts.values())) + " - " + name, flush=True)
    if not fine and detail != "":
        print("    " + str(detail)[:2000], flush=True)
    return fine


def same(name, expected, got):
    return check(name, expected == got, f"expected: {expected!r}\n    got:      {got!r}")


def finish():
    print(f"1..{sum(counts.values())}")
    sys.exit(1 if counts["failed"] else 0)


def check_metrics(text):
    """By Prometheus's own checker, which 'make browser' fetches; where it is not here the line says so."""
    own = os.path.join(os.path.dirname(TOOL), "promtool", "promtool")
    program = shutil.which("promtool") or (own if os.access(own, os.X_OK) else None)
    if not program:
        check("promtool does not look at the metrics: it is not here ('make browser') # skip", True)
        return
    done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, timeout=60)
    same("promtool has nothing to say of the metrics", (0, b""), (done.returncode, done.stdout + done.stderr))


class Server:
    """with Server("index", "--threads", "2") as s: s.get("/healthz")"""

    def __init__(self, *arguments, env=None, pass_fds=(), preexec=None, program=TOOL):
        self.folder = tempfile.TemporaryDirectory()
        ready = os.path.join(self.folder.name, "ready")
        self.errors = open(os.path.join(self.folder.name, "stderr"), "w+")
        self.out = open(os.path.join(self.folder.name, "stdout"), "w+")
        command = [program, "serve", "--listen", "127.0.0.1:0", "--ready-file", ready, "--threads", "2", *arguments]
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.errors, env=env, pass_fds=pass_fds,
                                        preexec_fn=preexec)
        end = time.monotonic() + 60
        while not os.path.exists(ready) and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if not os.path.exists(ready):
            text = self.stderr()
            self.stop()
            raise RuntimeError("the server does not start: " + text)
        with open(ready) as file:
            host, port = file.read().strip().rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))
        self.base = f"http://{host}:{port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        """Its exit code; killed where it does not leave."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code

    def stderr(self):
        with open(self.errors.name) as file:
            return file.read()

    def alive(self):
        try:
            return self.process.poll() is None and self.get("/healthz").status == 200
        except OSError:
            return False

    # ---- Requests ----

    def ask(self, path, body=None, headers=None, method=None):
        """By urllib: the answer, also a refusal."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.base + path, data=body, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return Answer(reply.status, dict(reply.headers), reply.read())
        except urllib.error.HTTPError as reply:
            with reply:
                return Answer(reply.code, dict(reply.headers), reply.read())

    def get(self, path, headers=None):
        return self.ask(path, headers=headers)

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return None

    @contextlib.contextmanager
    def connect(self):
        with socket.create_connection(self.address, timeout=30) as s:
            yield s

    def raw(self, data, half_close=False):
        """What comes back for bytes, until the server closes or is silent after a whole answer."""
        with self.connect() as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            return read_answer(s)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The sentence of a refusal, which is an object with nothing else."""
        value = json.loads(self.body)
        return value["error"] if list(value) == ["error"] else None


def read_answer(s):
    """One answer off a socket; None where it was closed before there was a whole one."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = receive(s)
        if not more:
            return None
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    headers = {k: v for k, v in (line.split(": ", 1) for line in lines[1:])}
    while len(body) < int(headers["Content-Length"]):
        more = receive(s)
        if not more:
            return None
        body += more
    answer = Answer(int(lines[0].split()[1]), headers, body[: int(headers["Content-Length"])])
    answer.rest = body[int(headers["Content-Length"]):]
    return answer


def receive(s):
    try:
        return s.recv(65536)
    except ConnectionError:
        return b""


def floats(values):
    return array.array("f", values).tobytes()


def read_raw(body, n, k):
    """ids and scores of a raw answer."""
    ids, scores = array.array("i"), array.array("f")
    ids.frombytes(body[: 4 * n * k])
    scores.frombytes(body[4 * n * k:])
    return ids.tolist(), scores.tolist()


def predict(index, *arguments):
    """What the tool itself answers: a list of JSON objects."""
    done = subprocess.run([TOOL, "predict", "--json", "--index", index, *arguments], capture_output=True, text=True,
                          check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def make_network(folder):
    """A small network of words with an index of its layer, in a folder: their paths, and the features' names."""
    def run(*arguments):
        subprocess.run([TOOL, *arguments], cwd=folder, check=True, capture_output=True)

    run("data", "synthetic", "-q", "--as", "text", "-m", "200", "-n", "1000", "-o", "x")
    run("train", "xc", "-q", "-t", "1", "-d", "16", "--lr", "0.02", "-e", "5", "--train", "x/train.txt", "-o", "net")
    run("embed", "-q", "net", "--data", "x/train.txt", "-o", "log")
    run("build", "-q", "--layer", "net", "--log", "log", "-K", "4", "-L", "2", "--iterations", "10", "-o", "index")
    with open(os.path.join(folder, "x/features.txt")) as file:
        return os.path.join(folder, "index"), os.path.join(folder, "net"), file.read().splitlines()


def queries(log):
    """The queries of a safetensors log, F32: a list of rows."""
    with open(log, "rb") as file:
        data = file.read()
    bytes_of_header = int.from_bytes(data[:8], "little")
    about = json.loads(data[8: 8 + bytes_of_header])["queries"]
    begin, end = (8 + bytes_of_header + at for at in about["data_offsets"])
    values = array.array("f", data[begin:end])
    n, d = about["shape"]
    return [values[i * d: (i + 1) * d].tolist() for i in range(n)]
