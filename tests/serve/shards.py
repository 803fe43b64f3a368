"""A front for shards: real servers and made-up ones on the loopback, some of them gone, slow or talking rubbish."""
import array
import contextlib
import http.server
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, check_metrics, finish, floats, predict, queries, read_raw, same

BYTES = "application/octet-stream"
LOG, LAYER = GOLDEN + "log.safetensors", GOLDEN + "layer.safetensors"
folder = tempfile.TemporaryDirectory()


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8: 8 + n])
    return {name: data[8 + n + about["data_offsets"][0]: 8 + n + about["data_offsets"][1]] for name, about in head.items() if name != "__metadata__"}


rows = queries(LOG)
layer = tensors(LAYER)
W, B = array.array("f", layer["weight"]), array.array("f", layer["bias"])
D = len(rows[0])
M = len(B)


def logit(query, y):
    return sum(a * b for a, b in zip(query, W[y * D: (y + 1) * D])) + B[y]


class Stub(http.server.ThreadingHTTPServer):
    """A shard of some of the golden layer's classes, exact, which misbehaves as it is told."""
    daemon_threads = True

    def __init__(self, classes, **more):
        super().__init__(("127.0.0.1", 0), Handler)
        self.classes, self.how, self.asked, self.connections = list(classes), None, 0, 0
        self.version = f"{hash((min(classes), len(self.classes))) & 0xffffffffffffffff:016x}"
        self.info = {"layer": "0c8f2a37243f5bf8", "model": "a model", "m": M, "d": D, "classes": len(self.classes), "names": True,
                     "prior": False, "exact_rows": True, "log_z": True, "max_probes": 8, **more}
        self.address = "127.0.0.1:%d" % self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def handle_error(self, *_):
        pass

    def infer(self, head, tail):
        n, d = head["inputs"][0]["shape"]
        told = head["parameters"]
        q = array.array("f", tail)
        k = min(told["k"], len(self.classes))
        ids, scores, log_z = array.array("i"), array.array("f"), array.array("f")
        for i in range(n):
            forbid = [] if self.how == "no masks" else told.get("forbid", [])
            logits = {y: logit(q[i * d: (i + 1) * d], y) + told.get("bias", {}).get(str(y), 0) for y in self.classes if y not in forbid}
            best = sorted(logits, key=lambda y: (-logits[y], y))[:k]
            z = math.log(sum(math.exp(v) for v in logits.values()))
            log_z.append(z)
            ids.extend(best + [-1] * (k - len(best)))
            scores.extend([logits[y] - (z if told["scores"] == "logprob" else 0) for y in best] + [-math.inf] * (k - len(best)))
        names = b"".join(struct.pack("<I", len(b"c%d" % y)) + b"c%d" % y if y >= 0 else b"\0\0\0\0" for y in ids)
        every = {"ids": ("INT32", [n, k], ids.tobytes()), "scores": ("FP32", [n, k], scores.tobytes()), "names": ("BYTES", [n, k], names),
                 "log_z": ("FP32", [n], log_z.tobytes()), "candidates": ("INT32", [n], array.array("i", [len(self.classes)] * n).tobytes())}
        self.spoil(every, n, k)
        wanted = [o["name"] for o in head["outputs"] if o["name"] in every]
        said = {"outputs": [{"name": name, "datatype": every[name][0], "shape": every[name][1],
                             "parameters": {"binary_data_size": len(every[name][2])}} for name in wanted]}
        return json.dumps(said).encode(), b"".join(every[name][2] for name in wanted)

    def spoil(self, every, n, k):
        if self.how == "no such class":
            every["ids"] = ("INT32", [n, k], array.array("i", [M] * n * k).tobytes())
        if self.how == "out of order":
            every["scores"] = ("FP32", [n, k], array.array("f", range(n * k)).tobytes())
        if self.how == "not a number":
            every["scores"] = ("FP32", [n, k], array.array("f", [math.nan] * n * k).tobytes())
        if self.how == "another shape":
            every["ids"] = ("INT32", [n, k + 1], every["ids"][2] + b"\0" * 4 * n)
        if self.how == "other names":
            every["names"] = ("BYTES", [n, k], b"\xff\xff\xff\x7f" * n * k)
        if self.how == "no scores":
            del every["scores"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def log_message(self, *_):
        pass

    def say(self, status, body, headers=(), length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            self.close_connection = True

    def do_GET(self):
        how = self.server.how
        if how == "no info":
            self.say(200, b"<html>hello</html>")
        elif how == "huge info":
            self.say(200, b"[" * (3 << 20))
        elif how == "closed":
            self.say(401, b"{}")
        else:
            self.say(200, json.dumps({"index": self.server.version, **self.server.info}).encode())

    def do_POST(self):
        server, how = self.server, self.server.how
        server.asked += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if f"/v2/models/a%20model/versions/{server.version}/infer" != self.path:
            return self.say(404, b'{"error": "there is no version"}')
        n = int(self.headers["Inference-Header-Content-Length"])
        if how == "slow":
            time.sleep(3)
        if how == "once" and server.asked % 2:
            return self.say(500, b"")
        if how == "503":
            return self.say(503, b'{"error": "busy"}')
        if how == "400":
            return self.say(400, b'{"error": "query 0: is not finite"}')
        if how == "rubbish":
            return self.say(200, os.urandom(300), [("Inference-Header-Content-Length", "200")])
        if how == "huge":
            return self.say(200, b" " * (8 << 20), [("Inference-Header-Content-Length", "100")])
        head, tail = server.infer(json.loads(body[:n]), body[n:])
        if how == "nested":
            head = b"[" * 50000
        length = [("Inference-Header-Content-Length", str(len(head)))]
        if how == "truncated":
            return self.say(200, (head + tail)[:-7], length, len(head + tail))
        if how == "too few bytes":
            return self.say(200, (head + tail)[:-4], length)
        if how == "no length":
            length = []
        if how == "long length":
            length = [("Inference-Header-Content-Length", "99999999999999999999")]
        self.say(200, head + tail, length)


def front(addresses, *arguments):
    return Server("--shards", ",".join(addresses), "-q", *arguments)


def answers(reply):
    return [[(a["id"], a.get("name"), round(a["score"], 3)) for a in r["answers"]] for r in reply.json()["results"]]


def exact(query, k, classes=range(M), add=lambda y: 0):
    values = sorted(((logit(query, y) + add(y), y) for y in classes), key=lambda v: (-v[0], v[1]))[:k]
    return [(y, f"c{y}", round(v, 3)) for v, y in values]


def close(a, b):
    return len(a) == len(b) and all(len(x) == len(y) and all(p[0] == q[0] and p[1] == q[1] and abs(p[2] - q[2]) < 2e-3 for p, q in zip(x, y)) for x, y in zip(a, b))


def refused(name, sentence, *arguments):
    done = subprocess.run([TOOL, "serve", "-q", "--listen", "127.0.0.1:0", *arguments], capture_output=True, text=True, timeout=60)
    same(name, (1, f"wideout: {sentence}\n"), (done.returncode, done.stderr))


done = subprocess.run([TOOL, "serve", "--shards", "127.0.0.1:1"], capture_output=True, text=True)
if "built without shards" in done.stderr:
    check("there are no shards here # skip", True)
    finish()

# ---- Three exact shards of one layer are the layer ----
thirds = [Stub(range(i, M, 3)) for i in range(3)]
where = [s.address for s in thirds]
with front(where, "--shard-timeout", "1.5") as s:
    reply = s.ask("/v1/search", {"queries": rows[:5], "k": 7})
    check("three shards are the layer", close([exact(q, 7) for q in rows[:5]], answers(reply)), reply.body)
    same("and nobody is missing", ([], None), (reply.json()["missing"], reply.headers.get("X-Wideout-Missing")))
    same("classes scored by all", M, reply.json()["results"][0]["candidates"])
    info = s.get("/v1/info").json()
    same("it says what it is", (M, M, D, "all", [True] * 3, where),
         (info["m"], info["classes"], info["d"], info["need"], [x["up"] for x in info["shards"]], [x["address"] for x in info["shards"]]))
    same("one checksum for all of them", info["index"], reply.json()["index"])
    raw = s.ask("/v1/search?k=3", floats(rows[0] + rows[1]), {"Content-Type": BYTES, "Accept": BYTES})
    same("raw both ways", [a[0] for q in rows[:2] for a in exact(q, 3)], read_raw(raw.body, 2, 3)[0])
    infer = {"inputs": [{"name": "queries", "shape": [1, D], "datatype": "FP32", "data": rows[0]}], "parameters": {"k": 2}}
    got = s.ask("/v2/models/wideout/infer", infer).json()["outputs"]
    same("KServe", (["ids", "scores", "names"], [a[0] for a in exact(rows[0], 2)], [a[1] for a in exact(rows[0], 2)]),
         ([o["name"] for o in got], got[0]["data"], got[2]["data"]))
    got = answers(s.ask("/v1/search", {"query": rows[0], "k": 7, "names": False}))
    check("without names", all(a[1] is None for a in got[0]), got)
    best = exact(rows[0], 1)[0][0]
    got = s.ask("/v1/search", {"query": rows[0], "k": 5, "forbid": [best]})
    check("masks go to all", close([exact(rows[0], 5, [y for y in range(M) if y != best])], answers(got)), got.body)
    got = s.ask("/v1/search", {"query": rows[0], "k": 5, "bias": {"3": 50, "4": 49}})
    check("so does a bias", close([exact(rows[0], 5, add=lambda y: {3: 50, 4: 49}.get(y, 0))], answers(got)), got.body)
    same("all that there are", M, len(answers(s.ask("/v1/search", {"query": rows[0], "k": 200}))[0]))
    z = math.log(sum(math.exp(logit(rows[0], y)) for y in range(M)))
    got = s.ask("/v1/search", {"query": rows[0], "k": 5, "scores": "logprob"})
    check("log probabilities are over all classes", close([exact(rows[0], 5, add=lambda y: -z)], answers(got)), got.body)
    got = s.ask("/v1/search", {"query": rows[0], "scores": "softmax"})
    same("softmax is not", (400, "softmax is over the candidates, which each shard has its own of: expected logits or logprob"), (got.status, got.error()))
    got = s.ask("/v1/predict", {"text": "x"})
    same("text needs a network here", (400, "no network is served beside the index: it takes queries, not text"), (got.status, got.error()))
    before = thirds[0].connections
    for _ in range(20):
        s.ask("/v1/search", {"query": rows[0]})
    check("connections are kept", thirds[0].connections - before < 12, thirds[0].connections - before)

    def asked_while(how, body=None):
        thirds[1].how = how
        before, start = thirds[1].asked, time.monotonic()
        reply = s.ask("/v1/search", body or {"query": rows[0], "k": 3})
        seconds, thirds[1].how = time.monotonic() - start, None
        until(lambda: s.get("/readyz").status == 200)
        return reply, thirds[1].asked - before, seconds

    # ---- One that fails ----
    reply, tries, _ = asked_while("once")
    check("one failure is tried again", reply.status == 200 and tries == 2 and close([exact(rows[0], 3)], answers(reply)), (reply.body, tries))
    same("and counted", 1.0, s.metric('wideout_shard_retries_total{shard="%s"}' % where[1]))
    for how, sentence in (("503", "it answers with status 503"),
                          ("rubbish", "its answer is not JSON"),
                          ("nested", "its answer is not JSON"),
                          ("huge", None),
                          ("truncated", None),
                          ("too few bytes", "its answer has names that are none"),
                          ("no length", "its answer is not what KServe's binary tensors look like"),
                          ("long length", "its answer is not what KServe's binary tensors look like"),
                          ("no such class", "its answer has ids of no class, or scores out of order"),
                          ("out of order", "its answer has ids of no class, or scores out of order"),
                          ("not a number", "its answer has ids of no class, or scores out of order"),
                          ("another shape", None),
                          ("no scores", "its answer has no scores of the right shape"),
                          ("other names", "its answer has names that are none")):
        reply, tries, _ = asked_while(how)
        said = reply.error()
        check(f"{how}: 503", reply.status == 503 and tries == 2 and "Retry-After" in reply.headers, (reply.status, reply.body, tries))
        check(f"{how}: why", said.startswith(f"shard {where[1]} is missing: ") and (not sentence or said.endswith(sentence)), said)
        same(f"{how}: who", where[1], reply.headers.get("X-Wideout-Missing"))
    reply, tries, _ = asked_while("no masks", {"query": rows[0], "k": M, "forbid": thirds[1].classes[:1]})
    check("a class that is forbidden: 503", reply.status == 503 and reply.error().endswith("its answer has a class that is forbidden"), reply.body)
    reply, _, _ = asked_while(None, {"query": rows[0], "k": M, "forbid": thirds[1].classes[:1]})
    check("and not where masks are known", reply.status == 200, reply.body)
    reply, tries, seconds = asked_while("slow")
    check("a slow one is not waited for longer than told", reply.status == 503 and 1.2 < seconds < 2.9, (reply.body, seconds))
    check("and why", "imeout" in reply.error(), reply.error())
    reply, tries, _ = asked_while("400")
    same("a request that is wrong is refused at once", (400, "query 0: is not finite", 1), (reply.status, reply.error(), tries))
    same("and nobody was blamed for it", True, s.get("/v1/info").json()["shards"][1]["up"])
    thirds[1].how = "slow"  # others are answered while one waits
    waiting = threading.Thread(target=lambda: s.ask("/v1/search", {"query": rows[0]}))
    waiting.start()
    time.sleep(0.2)
    start = time.monotonic()
    same("meanwhile others are answered", (200, 400), (s.get("/healthz").status, s.ask("/v1/search", {"query": [1]}).status))
    check("at once", time.monotonic() - start < 0.5, time.monotonic() - start)
    thirds[1].how = None
    waiting.join()
    check("metrics name who failed", s.metric('wideout_shard_missing_total{shard="%s"}' % where[1]) > 10
          and s.metric('wideout_shard_failures_total{shard="%s"}' % where[0]) == 0)

    # ---- One that has another index ----
    until(lambda: s.get("/readyz").status == 200)
    before = s.get("/readyz").json()["index"]
    thirds[2].version = "f" * 16
    reply = s.ask("/v1/search", {"query": rows[0], "k": 3})
    check("a shard with another index: the answer is of the new one", reply.status == 200 and close([exact(rows[0], 3)], answers(reply)), reply.body)
    after = s.get("/readyz").json()["index"]
    check("by another checksum", reply.json()["index"] == after != before, (before, after))
    thirds[2].info["layer"] = "0" * 16
    thirds[2].version = "e" * 16
    check("one of another layer is noticed", until(lambda: s.get("/readyz").status == 503))
    check("and said", until(lambda: s.get("/readyz").error() == f"shard {where[2]} is missing: its classes are of another layer than those of {where[0]}"),
          s.get("/readyz").body)
    reply = s.ask("/v1/search", {"query": rows[0], "k": 3})
    check("and answers are refused", reply.status == 503 and where[2] in reply.error(), reply.body)
    thirds[2].info["layer"] = "0c8f2a37243f5bf8"
    thirds[2].version = "d" * 16
    check("until it fits again", until(lambda: s.get("/readyz").status == 200))
    same("the front lives, and leaves with", 0, s.stop())

# ---- Most of them ----
with front(where, "--need", "most", "--shard-timeout", "1", "--name", "x") as s:
    thirds[0].how = "503"
    reply = s.ask("/v1/search", {"query": rows[0], "k": 5})
    left = [y for y in range(M) if y % 3]
    check("two of three are most", reply.status == 200 and close([exact(rows[0], 5, left)], answers(reply)), reply.body)
    same("who is missing is said", ([where[0]], where[0]), (reply.json()["missing"], reply.headers["X-Wideout-Missing"]))
    reply = s.ask("/v2/models/x/infer", infer)
    same("in KServe's dialect too", ({"missing": where[0]}, where[0]), (reply.json().get("parameters"), reply.headers["X-Wideout-Missing"]))
    reply = s.ask("/v1/search", {"query": rows[0], "scores": "logprob"})
    check("log probabilities need all", reply.status == 503 and f"shard {where[0]} is missing, and log probabilities need all" in reply.error(), reply.body)
    same("and it is ready", 200, s.get("/readyz").status)
    check("partial answers are counted", s.metric("wideout_partial_answers_total") >= 2)
    thirds[1].how = "503"
    reply = s.ask("/v1/search", {"query": rows[0], "k": 5})
    same("one of three is not", 503, reply.status)
    thirds[0].how = thirds[1].how = None

# ---- What does not fit is refused at the start ----
other_d, other_m, other = Stub([1], d=D + 1), Stub([1], m=M - 1), Stub([1], layer="1" * 16)
twin = Stub(range(0, M, 3))
refused("another d", f"shard {other_d.address}: it takes queries of {D + 1} numbers, {where[0]} of {D}", "--shards", ",".join(where + [other_d.address]))
refused("another m", f"shard {other_m.address}: its classes are of another layer than those of {where[0]}", "--shards", ",".join(where + [other_m.address]))
refused("another layer", f"shard {other.address}: its classes are of another layer than those of {where[0]}", "--shards", ",".join(where + [other.address]),
        "--need", "most")
refused("the same index twice", f"shard {twin.address}: it serves the same index as {where[0]}", "--shards", ",".join(where + [twin.address]))
numbered = [Stub(range(i, M, 3), shard={"number": i + 1, "count": 3, "dealing": "a" * 16}) for i in range(3)]
double = Stub(range(5, M, 3), shard={"number": 3, "count": 3, "dealing": "a" * 16})
dealt = Stub(range(7, M, 3), shard={"number": 2, "count": 3, "dealing": "b" * 16})
odd = Stub(range(7, M, 3), shard={"number": 4, "count": 3, "dealing": "b" * 16})
numbers = [n.address for n in numbered]
refused("a number twice", f"shard {double.address}: it is shard 3 of 3, as is {numbers[2]}", "--shards", ",".join(numbers + [double.address]))
refused("another division", f"shard {dealt.address}: its layer was divided into other shards than that of {numbers[0]}", "--shards",
        ",".join(numbers[:1] + numbers[2:] + [dealt.address]))
refused("a number that cannot be", f"shard {odd.address}: what it says at /v1/info is not what wideout serve says of an index", "--shards", odd.address)
with front(numbers[1:2]) as s:
    same("who is not listed is said", "wideout serve: of the 3 shards of the layer 2 are not listed, and their classes are in no answer: 1, 3\n", s.stderr())
with front(numbers) as s:
    same("three that say who they are", 200, s.get("/readyz").status)
other.how = "no info"
refused("no server of ours", f"shard {other.address}: what it says at /v1/info is not what wideout serve says of an index", "--shards", ",".join(where + [other.address]))
other.how = "huge info"
refused("one that says too much", f"shard {other.address}: what it says at /v1/info has more than 1048576 bytes", "--shards", other.address)
other.how = "closed"
refused("one that wants a token", f"shard {other.address}: it answers with status 401", "--shards", other.address)
refused("nobody", "shard 127.0.0.1:1: Couldn't connect to server", "--shards", "127.0.0.1:1")
refused("an address that is none", "shards: 'here' is no host:port", "--shards", "here")
refused("nothing", "shards: '' is no host:port", "--shards", "127.0.0.1:1,")
for port in ("0", "65536", "4294967376"):
    refused("port " + port, f"shards: '127.0.0.1:{port}' is no host:port", "--shards", "127.0.0.1:" + port)
refused("an address twice", "shards: 127.0.0.1:1 is there twice", "--shards", "127.0.0.1:1,127.0.0.1:1")
halves = [Stub(range(i, M, 2)) for i in range(2)]
halves[0].how = "closed"
refused("half is not most", f"shard {halves[0].address}: it answers with status 401", "--shards", ",".join(h.address for h in halves), "--need", "most")
halves[0].how = None
halves[1].info["log_z"] = halves[1].info["exact_rows"] = False
with front([h.address for h in halves]) as s:
    got = s.ask("/v1/search", {"query": rows[0], "scores": "logprob"})
    same("no log Z, no log probabilities", (400, "log probabilities cannot be merged: not every shard estimates log Z"), (got.status, got.error()))
    got = s.ask("/v1/search", {"query": rows[0], "exact": True})
    same("no rows, no exact answers", (400, "not every shard has f32 rows, which exact answers need"), (got.status, got.error()))

# ---- Servers of our own: three indexes of one layer, each with a third of the classes in its cells ----
def make_log(path, keep):
    """The golden log with the labels that are kept."""
    old = tensors(LOG)
    indptr = array.array("q", old["labels.indptr"]).tolist()
    wide = len(old["labels.indices"]) // indptr[-1]
    labels = array.array("i" if wide == 4 else "q", old["labels.indices"]).tolist()
    kept = [[y for y in labels[a:b] if keep(y)] for a, b in zip(indptr, indptr[1:])]
    ends = [0]
    for one in kept:
        ends.append(ends[-1] + len(one))
    parts = {"queries": ("F32", [len(rows), D], old["queries"]), "labels.indptr": ("I64", [len(ends)], array.array("q", ends).tobytes()),
             "labels.indices": ("I64", [ends[-1]], array.array("q", sum(kept, [])).tobytes())}
    head, at = {}, 0
    for name, (kind, shape, data) in parts.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in parts.values()))


paths = []
for i in range(3):
    make_log(f"{folder.name}/log{i}", lambda y: y % 3 == i)
    paths.append(f"{folder.name}/index{i}")
    subprocess.run([TOOL, "build", "-q", "--layer", LAYER, "--log", f"{folder.name}/log{i}", "--method", "evidence", "-K", "3", "-L", "2", "--source",
                    "labels", "--iterations", "5", "-o", paths[i]], check=True, capture_output=True)
each = [[[(a["id"], None, round(a["score"], 3)) for a in line["answers"]] for line in predict(path, "-k", "5", "--no-prior", LOG)] for path in paths]
check("their classes differ", all(a[0] % 3 == i for i in range(3) for line in each[i] for a in line))
merged = [sorted(sum((each[i][q] for i in range(3)), []), key=lambda a: (-a[2], a[0]))[:5] for q in range(len(rows))]
with open(folder.name + "/token", "w") as file:
    file.write("a-token-of-some-length\n")
with Server(paths[0], "-q", "--token-file", folder.name + "/token") as one, Server(paths[1], "-q", "--token-file", folder.name + "/token") as two, \
        Server(paths[2], "-q", "--token-file", folder.name + "/token") as three:
    where = ["%s:%d" % x.address for x in (one, two, three)]
    refused("they want a token", f"shard {where[0]}: it answers with status 401", "--shards", ",".join(where))
    with front(where, "--shard-token-file", folder.name + "/token", "--need", "most", "--shard-timeout", "20") as s:
        reply = s.ask("/v1/search", {"queries": rows, "k": 5, "prior": False})
        check("three indexes become one", close(merged, answers(reply)), reply.body)
        wrong = []

        def ask_many(thread):
            for i in range(30):
                q = (7 * thread + i) % len(rows)
                got = s.ask("/v1/search", {"query": rows[q], "k": 5, "prior": False})
                if got.status != 200 or got.json()["missing"] or not close([merged[q]], answers(got)):
                    wrong.append(got.body)

        threads = [threading.Thread(target=ask_many, args=(t,)) for t in range(8)]
        for t in threads:
            t.start()
        for _ in range(5):  # the same index again: nothing changes
            two.process.send_signal(signal.SIGHUP)
            time.sleep(0.05)
        for t in threads:
            t.join()
        same("240 requests on 8 threads", [], wrong[:2])
        got = s.ask("/v1/search", {"query": rows[0], "scores": "logprob"})
        same("they are not parts: no log probabilities", (400, f"log probabilities cannot be merged: the shards have {3 * M} classes together, the layer {M}"),
             (got.status, got.error()))
        got = s.ask("/v1/search", {"query": [1e38] * D})
        check("a query that no index takes", got.status in (200, 400), got.body)
        got = s.ask("/v1/search", floats([math.nan] * D), {"Content-Type": BYTES})
        same("nor one that is none", (400, "query 0: is not finite"), (got.status, got.error()))
        three.process.kill()
        three.process.wait()
        left = [sorted(each[0][q] + each[1][q], key=lambda a: (-a[2], a[0]))[:5] for q in range(len(rows))]
        got = s.ask("/v1/search", {"queries": rows, "k": 5, "prior": False})
        check("one is killed: the others answer", got.status == 200 and close(left, answers(got)) and got.json()["missing"] == [where[2]], got.body)
        check("and it is known", until(lambda: s.metric('wideout_shard_up{shard="%s"}' % where[2]) == 0))
        start = time.monotonic()
        with Server(paths[2], "-q", "--token-file", folder.name + "/token", "--listen", where[2]):
            check("one that comes back is asked again", until(lambda: s.ask("/v1/search", {"query": rows[0]}).json()["missing"] == []))
        check("metrics are as they should be", s.get("/metrics").body.count(b"# TYPE wideout_shard_up gauge") == 1)
        check_metrics(s.get("/metrics").body)

# ---- Shards that processes built together, where there is wideout-mpi: together they are the index of the layer ----
def true_shards():
    if not os.path.exists(TOOL + "-mpi") or not shutil.which("mpirun"):
        return check("there is no wideout-mpi here # skip", True)
    how = ["build", "-q", "--log", LOG, "--method", "evidence", "-K", "3", "-L", "2", "--iterations", "5", "--layer"]

    def run(*command):
        # What MPI itself leaves behind is no leak of ours.
        env = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
        subprocess.run(command, check=True, capture_output=True, timeout=120, env=env)

    run(TOOL, "shard", "-q", "--layer", LAYER, "-n", "3", "-o", folder.name + "/part")
    run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", TOOL + "-mpi", *how, folder.name + "/part", "-o", folder.name + "/built")
    run(TOOL, *how, LAYER, "-o", folder.name + "/whole")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(f"{folder.name}/built-{i + 1:05}-of-00003.safetensors", "-q")) for i in range(3)]
        s = stack.enter_context(front(["%s:%d" % x.address for x in servers]))
        whole = stack.enter_context(Server(folder.name + "/whole", "-q"))
        same("classes of all", (M, M), tuple(s.get("/v1/info").json()[name] for name in ("m", "classes")))
        for name, how in (("answers", {}), ("masks", {"forbid": [1, 2, 14, 63]}), ("log probabilities", {"scores": "logprob", "exact": True})):
            got, expected = (answers(x.ask("/v1/search", {"queries": rows, "k": 7, **how})) for x in (s, whole))
            check(f"shards of the layer are the layer: {name}", close(expected, got), (expected[0], got[0]))
    return True


true_shards()

# ---- A network in front ----
with Server(GOLDEN + "index-names.safetensors", "-q") as one, front(["%s:%d" % one.address], "--net", GOLDEN + "network-xc.safetensors") as s, \
        Server(GOLDEN + "index-names.safetensors", "-q", "--net", GOLDEN + "network-xc.safetensors") as whole:
    ask = {"features": {"0": 1, "3": 0.5}, "k": 3}
    ask = ask if whole.ask("/v1/predict", ask).status == 200 else {"text": "one word", "k": 3}
    got, expected = s.ask("/v1/predict", ask), whole.ask("/v1/predict", ask)
    same("text is the front's", [r["answers"] for r in expected.json()["results"]], [r["answers"] for r in got.json().get("results", [])])
    same("by one shard", 200, got.status)
    same("masks by name are not the front's", (400, "forbid: 'x' is a name, and a shard knows its own alone: expected numbers of classes"),
         (lambda reply: (reply.status, reply.error()))(s.ask("/v1/predict", {**ask, "forbid": ["x"]})))

# ---- At the end ----
thirds[0].how = "slow"
with front([t.address for t in thirds], "--shard-timeout", "30", "--timeout", "1") as s:
    got = []

    def wait():
        try:
            reply = s.ask("/v1/search", {"query": rows[0]})
            got.append((reply.status, reply.error()))
        except OSError:  # a second signal ends it at once, perhaps before the answer is sent
            got.append("closed")

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    s.process.send_signal(signal.SIGTERM)
    waiting.join()
    check("nothing waits for longer than the server lives", got[0] in ("closed", (503, "the server is about to leave")), got)
    same("and it leaves with", 0, s.stop())
thirds[0].how = None

# ---- Other hosts: a network of their own for each, where that can be had ----
def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0


def namespaces():
    names = [f"wo{os.getpid() % 100000}x{i}" for i in range(2)]
    made, servers = [], []
    try:
        for i, name in enumerate(names):
            host, there = f"{name}h", f"{name}n"
            if not (ip("netns", "add", name) and made.append(name) is None and ip("link", "add", host, "type", "veth", "peer", "name", there)
                    and ip("link", "set", there, "netns", name) and ip("addr", "add", f"10.213.{i}.1/24", "dev", host) and ip("link", "set", host, "up")
                    and ip("-n", name, "addr", "add", f"10.213.{i}.2/24", "dev", there) and ip("-n", name, "link", "set", there, "up")):
                return check("networks of their own # skip: not allowed here", True)
            ready = f"{folder.name}/ready{i}"
            servers.append(subprocess.Popen(["ip", "netns", "exec", name, TOOL, "serve", "-q", "--listen", f"10.213.{i}.2:0", "--ready-file", ready, paths[i]],
                                            stderr=subprocess.DEVNULL))
            until(lambda: os.path.exists(ready))
            where[i] = open(ready).read().strip()
        with front(where[:2], "--shard-timeout", "1") as s:
            both = [sorted(each[0][q] + each[1][q], key=lambda a: (-a[2], a[0]))[:5] for q in range(len(rows))]
            got = s.ask("/v1/search", {"queries": rows, "k": 5, "prior": False})
            check("over two networks", close(both, answers(got)), got.body)
            ip("link", "set", f"{names[1]}h", "down")  # nothing answers there, not even with a refusal
            start = time.monotonic()
            got = s.ask("/v1/search", {"query": rows[0]})
            check("a cable is pulled", got.status == 503 and where[1] in got.error() and time.monotonic() - start < 3, got.body)
            check("it is not ready", until(lambda: s.get("/readyz").status == 503))
            start = time.monotonic()
            got = s.ask("/v1/search", {"query": rows[0]})
            check("nobody waits for one that is known to be gone", got.status == 503 and time.monotonic() - start < 0.7, time.monotonic() - start)
            ip("link", "set", f"{names[1]}h", "up")
            check("and in again", until(lambda: s.ask("/v1/search", {"query": rows[0]}).status == 200))
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        for name in made:
            ip("netns", "del", name)
            ip("link", "del", f"{name}h")
    return True


namespaces()
finish()
