"""The plain dialect: the tool's own answers, over a port, as JSON and as raw floats; health, metrics, the end."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, check_metrics, finish, floats, make_network, predict, queries, read_answer, read_raw, same

BYTES = "application/octet-stream"
rows = queries(GOLDEN + "log.safetensors")[:12]


def answers(result):
    return [(a["id"], a["score"]) for a in result["answers"]]


def tool(index, *arguments):
    return [answers(line) for line in predict(index, *arguments, GOLDEN + "log.safetensors")[: len(rows)]]


def search(server, **how):
    reply = server.ask("/v1/search", {"queries": rows, **how})
    return [answers(result) for result in reply.json()["results"]] if reply.status == 200 else reply.body


prior = GOLDEN + "index-prior.safetensors"
with Server(prior) as s:
    checksum = json.loads(subprocess.run([TOOL, "info", "--json", prior], capture_output=True, text=True).stdout)
    checksum = checksum["metadata"]["xxh3.header"]
    same("many queries", tool(prior, "-k", "5"), search(s))
    one = s.ask("/v1/search", {"query": rows[0], "k": 3})
    same("one query", tool(prior, "-k", "3")[0], answers(one.json()["results"][0]))
    same("its scores are named", "logits+prior", one.json()["scores"])
    same("the answer carries the checksum", (checksum, checksum), (one.json()["index"], one.headers["X-Wideout-Index"]))
    same("as the tool: cells and candidates", [(x["cells"], x["candidates"]) for x in predict(prior, GOLDEN + "log.safetensors")[:1]],
         [(x["cells"], x["candidates"]) for x in one.json()["results"]])
    same("softmax", tool(prior, "--softmax"), search(s, scores="softmax"))
    same("exactly", tool(prior, "--exact"), search(s, exact=True))
    same("without the prior", tool(prior, "--no-prior"), search(s, prior=False))
    same("more probes", tool(prior, "--probes", "8"), search(s, probes=8))
    same("masks", tool(prior, "--forbid", "1,2,3", "--require", "40,41"), search(s, forbid=[1, 2, 3], require=[40, 41]))
    biased = search(s, bias={"50": 1000, "3": -5.5}, require=[50])
    check("a bias", all(row[0][0] == 50 for row in biased), biased)
    same("as many as there are classes, at most", 64, len(search(s, k=1000, exact=True)[0]))

    body = b"".join(floats(row) for row in rows)
    raw = s.ask("/v1/search?k=4", body, {"Content-Type": BYTES, "Accept": BYTES})
    ids, scores = read_raw(raw.body, len(rows), 4)
    expected = tool(prior, "-k", "4")
    same("raw both ways: ids", [a[0] for row in expected for a in row], ids)
    check("and scores", all(abs(a[1] - b) < 1e-6 for a, b in zip([a for row in expected for a in row], scores)), scores)
    same("its type and checksum", (BYTES, checksum), (raw.headers["Content-Type"], raw.headers["X-Wideout-Index"]))
    half = s.ask("/v1/search?k=4&exact=true&forbid=1,2", body, {"Content-Type": BYTES})
    same("raw in, JSON out", tool(prior, "-k", "4", "--exact", "--forbid", "1,2"),
         [answers(r) for r in half.json()["results"]])
    back = s.ask("/v1/search", {"query": rows[0], "k": 2}, {"Accept": BYTES})
    same("JSON in, raw out", [a[0] for a in tool(prior, "-k", "2")[0]], read_raw(back.body, 1, 2)[0])

    info = s.get("/v1/info").json()
    same("what it is", ("evidence", 64, 16, True, None), tuple(info[k] for k in ("method", "m", "d", "prior", "network")))
    same("no network, no text", "no network is served beside the index: it takes queries, not text",
         s.ask("/v1/predict", {"text": "a"}).error())
    same("healthz", {"alive": True}, s.get("/healthz").json())
    same("readyz", {"ready": True, "index": checksum}, s.get("/readyz").json())
    head = s.ask("/readyz", method="HEAD")
    same("HEAD", (200, b""), (head.status, head.body))

    # ---- Metrics ----
    before = s.metric('wideout_queries_total{by="cells"}'), s.metric('wideout_queries_total{by="full"}')
    search(s)
    search(s, exact=True)
    after = s.metric('wideout_queries_total{by="cells"}'), s.metric('wideout_queries_total{by="full"}')
    same("who answered is counted", (before[0] + 12, before[1] + 12), after)
    text = s.get("/metrics").body.decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    for name in ("requests_total", "errors_total", "request_seconds", "batch_queries", "classes_scored_total", "ready"):
        check("metric " + name, "wideout_" + name in names, names)
    same("every line is a comment or a sample", [],
         [x for x in text.splitlines() if not x.startswith("# ") and len(x.rsplit(" ", 1)) != 2])
    buckets = [float(x.split()[-1]) for x in text.splitlines() if x.startswith("wideout_request_seconds_bucket")]
    check("buckets rise to the count", buckets == sorted(buckets) and buckets[-1] == s.metric("wideout_request_seconds_count") - 1,
          buckets)
    check_metrics(text.encode())
    errors = s.metric("wideout_errors_total")
    s.get("/nowhere")
    same("errors are counted", errors + 1, s.metric("wideout_errors_total"))

# ---- A network beside it ----
folder = tempfile.TemporaryDirectory()
named, net, features = make_network(folder.name)
with Server(named, "--net", net) as s:
    info = s.get("/v1/info").json()
    same("the network is told of", ("xc", True), (info["network"]["arch"], info["network"]["text"]))
    line = " ".join(features[:3])
    expected = json.loads(subprocess.run([TOOL, "predict", "--json", "--index", named, "--net", net,
                                          "--format", "text"], input=line + "\n", capture_output=True, text=True).stdout)
    got = s.ask("/v1/predict", {"text": line}).json()["results"][0]
    same("text", expected["answers"], got["answers"])
    same("how much of it is known", expected["known"], got["known"])
    two = s.ask("/v1/predict", {"text": [line, features[4] + "\n" + features[5]], "k": 2}).json()["results"]
    same("two texts, one with two lines", (2, 2, 2), (len(two), len(two[0]["answers"]), two[1]["known"]))
    same("features by name", [a["id"] for a in expected["answers"]],
         [a["id"] for a in s.ask("/v1/predict", {"features": {f: 1 for f in features[:3]}}).json()["results"][0]["answers"]])
    same("a row", [a["id"] for a in expected["answers"]],
         [a["id"] for a in s.ask("/v1/predict", {"text": " 0:1 1:1 2:1", "format": "xc"}).json()["results"][0]["answers"]])
    same("nothing that it knows", "features 0: the network knows none of them", s.ask("/v1/predict", {"features": {"?": 1}}).error())
    same("blank", "text 1 is blank", s.ask("/v1/predict", {"text": ["a", " \n"]}).error())
    same("both", "text and features are two ways to say it: one of them will do",
         s.ask("/v1/predict", {"text": "a", "features": {}}).error())
    check("names can be left out", "name" not in s.ask("/v1/predict", {"text": line, "names": False}).json()["results"][0]["answers"][0])

    check("it is the index's", "warning" not in s.stderr(), s.stderr())
with Server(prior, "--net", net) as s:
    check("a network of another layer is told of", net + ": its output layer is not the one of the index" in s.stderr(), s.stderr())

# Masks by name: what a name is, it is of all classes that have it, and one that nobody has closes the whole request.
twins = folder.name + "/twins"
with open(folder.name + "/names", "w") as f:
    f.writelines(["twin\n" if i % 9 == 4 else f"class {i}\n" for i in range(63)] + ["7\n"])
subprocess.run([TOOL, "build", "-q", "--layer", GOLDEN + "layer.safetensors", "--method", "full", "--names", folder.name + "/names",
                "-o", twins], check=True, stdout=subprocess.DEVNULL)
with Server(twins) as s:
    for path, of in (("/v1/search", lambda how: {"query": rows[0], "k": 64, **how}),
                     ("/v2/models/wideout/infer", lambda how: {"inputs": [{"name": "queries", "datatype": "FP32", "shape": [1, len(rows[0])],
                                                                           "data": rows[0]}], "parameters": {"k": 64, **how}})):
        def left(**how):
            reply = s.ask(path, of(how)).json()
            ids = reply["outputs"][0]["data"] if "outputs" in reply else [a["id"] for a in reply["results"][0]["answers"]]
            return set(range(64)) - set(ids)
        same(path + ": forbidden by name", {3}, left(forbid=["class 3"]))
        same("a name that several classes have forbids them all, numbers beside it", {1, 2, *range(4, 63, 9)}, left(forbid=[1, "twin", 2]))
        same("digits in quotes are a name", {63, 7}, left(forbid=["7", 7]))
        same("no class of that name", (400, "forbid: no class is called 'class 4'"),
             (lambda r: (r.status, r.error()))(s.ask(path, of({"forbid": [1, "class 4"]}))))
    same("required by name", [3], [a["id"] for a in s.ask("/v1/search", {"query": rows[0], "k": 1, "require": ["class 3"], "bias": {"3": 1e6}}).json()["results"][0]["answers"]])
    same("a name again and again", "forbid: its names have more classes than there are: is one there twice?",
         s.ask("/v1/search", {"query": rows[0], "forbid": ["twin"] * 12}).error())

# What a file says of itself is text, whatever is in it.
sign = os.path.join(os.path.dirname(TOOL), "tests/tools/sign")
if os.access(sign, os.X_OK):
    subprocess.run([sign, net, folder.name + "/quoted", '"extractor":"words"', '"extractor":"\\",\\""'], check=True)
    with Server(named, "--net", folder.name + "/quoted") as s:
        same("quotes in the name of an extractor", '","', s.get("/v1/info").json()["network"]["extractor"])
else:
    check("no extractor of an attacker: tests/tools/sign is not here # skip", True)

# ---- Texts have limits ----
def refused(reply):
    return reply.status, reply.error() if reply.status != 200 else None


with Server(named, "--net", net, "--max-text", "100", "--learn") as s:
    word = features[0] + " "
    text = (word * 100)[:100].strip().ljust(100)
    limits = s.get("/v1/info").json()["limits"]
    same("they are told", (100, 1600), (limits["text_bytes"], limits["texts_bytes"]))
    same("the longest text", (200, None), refused(s.ask("/v1/predict", {"text": text})))
    same("the most of them", (200, None), refused(s.ask("/v1/predict", {"text": [text] * 16})))
    longer = (413, "text 1 has 101 bytes, at most 100 are taken")
    same("one that is longer", longer, refused(s.ask("/v1/predict", {"text": [text, text + "x"]})))
    same("as deb822", longer, refused(s.ask("/v1/predict", {"text": [text, text + "x"], "format": "deb822"})))
    same("as feedback", longer, refused(s.ask("/v1/feedback", {"text": [text, text + "x"], "labels": [[1], [1]]})))
    infer = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "data": [text, text + "x"]}]}
    same("by KServe", longer, refused(s.ask("/v2/models/wideout/infer", infer)))
    same("too much of them", (413, "the 17 texts have 1601 bytes together, at most 1600 are taken"),
         refused(s.ask("/v1/predict", {"text": [text] * 16 + ["x"]})))
    same("features are no text", 200, s.ask("/v1/predict", {"features": {f: 1.25 for f in features[:40]}}).status)
with Server(named, "--net", net) as s:
    same("65536 by default", [200, 413], [s.ask("/v1/predict", {"text": features[0].ljust(n)}).status for n in (65536, 65537)])

# A handler that computes for long does not keep the server from leaving. The network is one of words, and large enough.
corpus, lm = folder.name + "/corpus", folder.name + "/lm"
with open(corpus, "w") as file:
    file.write("\n".join(" ".join(f"w{(i * j) % 17}" for i in range(20)) for j in range(100)) + "\n")
for arguments in (("data", "text", "-q", corpus, "-o", folder.name + "/tokens"),
                  ("train", "lm", "-q", "-t", "1", "-d", "256", "-e", "1", "-b", "2", "--train", folder.name + "/tokens/train.tokens.safetensors", "-o", lm),
                  ("build", "-q", "--layer", lm, "--method", "full", "--weights", "none", "-o", lm + ".index")):
    subprocess.run([TOOL, *arguments], check=True, capture_output=True)
for twice in (False, True):
    with Server(lm + ".index", "--net", lm, "--max-text", "16000000", "--timeout", "30" if twice else "1") as s:
        body = json.dumps({"text": "w1 " * 3000000}).encode()
        message = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        same("all texts of a language model are one", (413, 16000000), (s.ask("/v1/predict", {"text": ["w1 " * 3000000] * 2}).status, s.get("/v1/info").json()["limits"]["texts_bytes"]))
        with s.connect() as c:
            c.sendall(message)
            time.sleep(1)
            start = time.monotonic()
            s.process.send_signal(signal.SIGTERM)
            if twice:
                time.sleep(0.3)
                s.process.send_signal(signal.SIGTERM)
            try:
                code = s.process.wait(30)
            except subprocess.TimeoutExpired:
                code = None
            seconds = time.monotonic() - start
        same("it leaves with 0 under a request that computes" + (", told twice" if twice else ""), (0, True), (code, seconds < 10))
        check("and says so", "requests are still under way, and have no answer" in s.stderr(), s.stderr())
        check("its ready file is gone", not os.path.exists(s.folder.name + "/ready"))

# ---- Starting and leaving ----
with Server(prior, "--exact", "--drain", "1") as s:
    same("--exact", tool(prior, "--exact"), search(s))
    same("unless a request says otherwise", tool(prior), search(s, exact=False))
    with s.connect() as slow:  # half of a request when SIGTERM comes: it is answered all the same
        body = json.dumps({"query": rows[0]}).encode()
        slow.sendall(b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:10])
        time.sleep(0.1)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        not_ready = s.get("/readyz")
        same("after SIGTERM it is not ready", (503, "the server is about to leave"), (not_ready.status, not_ready.error()))
        check("and says when to come again", "Retry-After" in not_ready.headers)
        slow.sendall(body[10:])
        answer = read_answer(slow)
        same("what had begun is answered", 200, answer and answer.status)
        same("and the connection ends", "close", answer and answer.headers.get("Connection"))
    same("it leaves with", 0, s.stop())
    check("the ready file is gone", not os.path.exists(s.folder.name + "/ready"))
with Server(prior) as s:
    start = time.monotonic()
    idle = socket.create_connection(s.address)
    same("SIGINT ends it too", 0, s.stop(signal.SIGINT))
    check("and nobody waits for idle connections", time.monotonic() - start < 5)
    idle.close()
codes = set()
for _ in range(5):  # told again and again, to the last moment: it leaves as one that was told once
    with Server(prior, "-q") as s:
        while s.process.poll() is None:
            s.process.send_signal(signal.SIGTERM)
        codes.add(s.process.returncode)
same("SIGTERM many times", {0}, codes)

# ---- Many at a time ----
with Server(prior) as s:
    expected, wrong = tool(prior, "-k", "5"), []

    def ask_many():
        for i in range(60):
            row = i % len(rows)
            got = s.ask("/v1/search", {"query": rows[row]})
            if got.status != 200 or answers(got.json()["results"][0]) != expected[row]:
                wrong.append(got.body)

    threads = [threading.Thread(target=ask_many) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same("480 requests on 8 threads have their own answers", [], wrong)
finish()
