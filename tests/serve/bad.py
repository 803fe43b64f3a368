"""Bad input: every refusal has its status and one sentence, and the server lives."""
import json
import os
import re
import socket
import sys
import tempfile
import time

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, floats, queries, read_answer, receive, same

BYTES = "application/octet-stream"
row = queries(GOLDEN + "log.safetensors")[0]
good = json.dumps({"query": row, "k": 2}).encode()


def post(body, extra=b"", path=b"/v1/search", length=None):
    return (b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (len(body) if length is None else length)
            + extra + b"\r\n" + body)


with Server(GOLDEN + "index-prior.safetensors", "--max-body", "20000", "--max-queries", "20", "--max-k", "50", "--timeout", "1",
            "--max-connections", "40") as s:
    def refused(name, status, sentence, body, headers=None, path="/v1/search", method=None):
        reply = s.ask(path, body, headers, method)
        said = reply.error() if reply.status != 200 else reply.body
        if "column" in sentence:  # versions of jansson count columns differently
            said, sentence = (re.sub("column [0-9]+", "column", text) for text in (said, sentence))
        same(name, (status, sentence), (reply.status, said))

    # ---- Bodies ----
    refused("no JSON", 400, "the body is not JSON: line 1, column 1: '[' or '{' expected near 'q'", b"q")
    refused("nothing", 400, "there is no body, expected a JSON object", b"")
    refused("half of it", 400, "the body is not JSON: line 1, column 12: ']' expected near end of file", b'{"query": [1')
    refused("a list", 400, "the body is JSON, but no object", b"[1]")
    refused("twice the same", 400, 'the body is not JSON: line 1, column 14: duplicate object key near \'"k"\'', b'{"k": 1, "k": 2}')
    refused("deep nesting", 413, "the body has 9001 lists and objects, at most 1064 are taken", b'{"query": ' + b"[" * 9000 + b"]" * 9000 + b"}")
    deep = s.ask("/v1/search", b'{"query": ' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}")
    check("nesting that JSON still allows", deep.status == 400, deep.body)
    refused("a query that is none", 400, "query is no list", {"query": 7})
    refused("of texts", 400, "query 0 has no number at place 1", {"query": [1, "a"] + row[2:]})
    refused("of numbers and a list of numbers", 400, "query 0 has 2 numbers, the index takes 16", {"query": [row[0], row[1:]]})
    refused("with a list within", 400, "query 0 has no number at place 2", {"query": row[:2] + [[row[2]]] + row[3:]})
    refused("a query in two parts", 400, "query 0 has 2 numbers, the index takes 16", {"queries": [[row[:8], row[8:]]]})
    refused("one in a list", 400, "query 1 has 1 numbers, the index takes 16", {"queries": [row, [row]]})
    refused("a number among queries", 400, "query 1 is no list of numbers", {"queries": [row, 1]})
    refused("too short", 400, "query 0 has 15 numbers, the index takes 16", {"query": row[:15]})
    refused("too long", 400, "query 1 has 17 numbers, the index takes 16", {"queries": [row, row + [1]]})
    refused("no queries", 400, "queries is no list of lists of numbers", {"queries": []})
    refused("neither", 400, "the object has neither query nor queries", {"k": 5})
    refused("both", 400, "query and queries are the same thing: one of them will do", {"query": row, "queries": [row]})
    refused("too large a number", 400, "the body is not JSON: line 1, column 16: real number overflow near '1e999'",
            b'{"query": [1e999]}')
    refused("beyond a float", 400, "query 0: is not finite", {"query": [1e300] + row[1:]})
    refused("NaN", 400, "query 1: is not finite", floats(row + [float("nan")] + row[1:]), {"Content-Type": BYTES})
    refused("scores beyond a float", 400, "query 0: its scores are too large: not finite", floats([3e38] + [0] * 15), {"Content-Type": BYTES})
    refused("raw and cut off", 400, "the body has 63 bytes, expected a multiple of 64: 16 floats a query", floats(row)[1:],
            {"Content-Type": BYTES})
    refused("raw and empty", 400, "there are no queries", b"", {"Content-Type": BYTES})
    refused("too many", 413, "21 queries are more than the 20 that a request may have", {"queries": [row] * 21})
    refused("huge k", 400, "k is 51, expected at most 50", {"query": row, "k": 51})
    refused("k beyond all numbers", 400, "the body is not JSON: line 1, column 24: too big integer near '99999999999999999999'",
            b'{"k": 99999999999999999999}')
    refused("k of nothing", 400, "k is 0, expected 1 or more", {"query": row, "k": 0})
    refused("k of text", 400, "k is no whole number", {"query": row, "k": "5"})
    refused("a mask of nobody", 400, "forbid: 64 is not one of the 64 classes", {"query": row, "forbid": [64]})
    refused("a mask that is none", 400, "require: place 1 has no whole number, and no name", {"query": row, "require": [1, 2.5]})
    refused("a mask by name, without names", 400, "require: '2' is a name, and the index has no names of classes: expected numbers of classes",
            {"query": row, "require": [1, "2"]})
    refused("a bias of nobody", 400, "bias: 'x' is not one of the 64 classes", {"query": row, "bias": {"x": 1}})
    refused("a bias that is none", 400, "bias of class 3 is no number that a float holds", {"query": row, "bias": {"3": 1e300}})
    refused("a bias of a class said in two ways", 400, "bias: '01' is not one of the 64 classes", {"query": row, "bias": {"1": 5, "01": -5}})
    refused("scores of another kind", 400, "scores is 'odds', expected logits, softmax or logprob", {"query": row, "scores": "odds"})
    refused("what the index cannot do", 400,
            "the index knows no log Z, which probabilities need: it was built without a partition", {"query": row, "scores": "logprob"})
    refused("too many probes", 400, "probes is 1000, expected 1 to 64 of this index", {"query": row, "probes": 1000})
    refused("a member that is none", 400, "a search has no member 'K'", {"query": row, "K": 5})
    refused("a bad argument", 400, "k is '5x', expected a whole number", floats(row), {"Content-Type": BYTES}, "/v1/search?k=5x")
    refused("an argument that is none", 400, "a search has no argument 'exakt'", floats(row), {"Content-Type": BYTES}, "/v1/search?exakt=true")
    refused("an argument twice", 400, "the argument 'k' is there twice", floats(row), {"Content-Type": BYTES}, "/v1/search?k=2&k=3")
    refused("an argument without a value", 400, "the argument 'exact' has no value", floats(row), {"Content-Type": BYTES}, "/v1/search?exact")
    refused("arguments beside JSON", 400, "the argument 'k' belongs into the body, which is JSON", {"query": row}, path="/v1/search?k=2")
    refused("and of a prediction", 400, "the argument 'k' belongs into the body, which is JSON", {"text": "a"}, path="/v1/predict?k=2")
    refused("and of KServe", 400, "the argument 'k' belongs into the body, which is JSON", {"inputs": []}, path="/v2/models/wideout/infer?k=2")
    nul = "the path or an argument has a NUL byte, %00"
    for path in ("/v1/search?k=5%00", "/v1/search?exact=true%00false", "/v1/search?forbid=0%00,1", "/v1/search?require=%00", "/v1/search?k%00x=5", "/v1/search%00?k=5"):
        refused("a NUL byte in " + path, 400, nul, floats(row), {"Content-Type": BYTES}, path)
    refused("one behind a path that is for all", 400, nul, None, path="/healthz%00x")
    refused("an escaped percent sign is none", 400, "k is '%00', expected a whole number", floats(row), {"Content-Type": BYTES}, "/v1/search?k=%2500")
    for member in ('"scores": "logits\\u0000"', '"k\\u0000": 5', '"bias": {"1\\u00002": 5}', '"scores": "logits\0"'):
        reply = s.ask("/v1/search", ('{"query": %s, %s}' % (row, member)).encode())
        check(f"a NUL byte in JSON: {member!r}", reply.status == 400 and "the body is not JSON: " in reply.error() and
              any(what in reply.error() for what in ("\\u0000", "NUL byte", "control character")), reply.body)
    refused("KServe's inputs are a list", 400, "inputs is no list", {"inputs": {}}, path="/v2/models/wideout/infer")
    refused("and are there", 400, "the object has no inputs", {}, path="/v2/models/wideout/infer")
    refused("a coding of nobody", 501, "Transfer-Encoding is 'gzip', expected chunked", b"", {"Transfer-Encoding": "gzip"})
    npy = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 16), }".ljust(117) + b"\n" + floats(row)
    for kind in (BYTES, "application/json"):
        refused("a .npy file as " + kind, 415, "the body is a .npy file, expected its numbers alone: float32, without a header", npy, {"Content-Type": kind})
    refused("another type", 415, "the body is 'text/csv', expected application/json", b"1,2", {"Content-Type": "text/csv"})
    refused("too large", 413, "the body has 20001 bytes, at most 20000 are taken", b" " * 20001)

    # ---- Paths and methods ----
    for target, status in ((b"http://x/healthz", 200), (b"HTTPS://X/healthz", 200), (b"http://x", 200), (b"http://x/nowhere", 404), (b"http:/healthz", 404), (b"http://evil/healthz", 400), (b"http://x:80/healthz", 400), (b"http://x@evil/healthz", 400),
                           (b"http://a@x/healthz", 400), (b"http:///healthz", 400)):
        reply = s.raw(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        same("a target as for a proxy: " + target.decode(), status, reply.status)
    refused("an unknown path", 404, "there is nothing at '/v1/Search'", good, path="/v1/Search")
    refused("a path with odd letters", 404, "there is nothing at '/\u00e4\"<'", None, path="/%C3%A4%22%3C")
    refused("a path that is no UTF-8", 404, "there is nothing at '/\ufffd'", None, path="/%ff")
    refused("another method", 405, "DELETE is no method of /v1/search: POST is", None, method="DELETE")
    same("it says which", "GET, HEAD", s.ask("/v1/info", b"x").headers["Allow"])
    same("a method of nobody", 405, s.ask("/healthz", method="BREW").status)
    for what in (b"hello\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        reply = s.raw(what, half_close=True)
        check(f"no HTTP: {what[:14]!r}", (reply is None or reply.status >= 400) and s.alive(), reply and reply.status)
    reply = s.raw(b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n")
    check("a path that does not end", reply is None or reply.status in (414, 431), reply and reply.status)
    reply = s.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20000 + b"\r\n")
    check("headers that do not end", reply is None or reply.status in (400, 413, 431), reply and reply.status)
    check("it lives", s.alive())

    # ---- Ways to send it ----
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(good[i: i + 50]), good[i: i + 50]) for i in range(0, len(good), 50)) + b"0\r\n\r\n"
    head = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    same("chunks", 200, s.raw(head + chunks).status)
    long = s.raw(head + b"1000\r\n" + b" " * 0x1000 + b"\r\n" + (b"1000\r\n" + b" " * 0x1000 + b"\r\n") * 5 + b"0\r\n\r\n")
    same("chunks beyond the limit", (413, "the body has more than 20000 bytes"), (long.status, long.error()))
    bad = s.raw(head + b"zz\r\nabc\r\n0\r\n\r\n")
    check("a chunk without a size", bad is None or bad.status == 400, bad and bad.status)
    with s.connect() as c:
        sent = 0
        try:
            c.sendall(head)
            while sent < 1 << 22:  # many times the limit: it does not read for ever
                c.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
                sent += 0x1000
        except OSError:
            pass
        check("chunks without an end are cut off", sent < 1 << 22, sent)
    same("a body that is too long by far", 413, s.raw(post(b"", length=1 << 40)).status)
    waiting = s.raw(post(b"", b"Expect: 100-continue\r\n", length=20001))
    same("a client that asks first hears so at once", 413, waiting.status)
    with s.connect() as c:
        c.sendall(post(good) * 5 + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        statuses, left = [], b""
        c.settimeout(5)
        while left.count(b"HTTP/1.1 ") < 6 and (more := receive(c)):
            left += more
        check("six requests in one go have six answers", left.count(b"HTTP/1.1 200 OK") == 6, left)
    answer = s.raw(post(good), half_close=True)
    same("a half-closed socket is still answered", 200, answer and answer.status)
    reply = s.raw(post(good[:20], length=len(good)), half_close=True)
    check("half of a body, then the end", reply is None or reply.status == 408, reply and reply.status)
    check("it lives", s.alive())

    # ---- Where a request ends, and for whom it is: said once ----
    twice = "the request says more than once how long it is: expected one Content-Length or Transfer-Encoding"
    for name, extra, sentence in (
            ("a length and chunks", b"Transfer-Encoding: chunked\r\n", twice),
            ("two lengths", b"Content-Length: 5\r\n", twice),
            ("the same length twice", b"content-length: %d\r\n" % len(good), twice),
            ("two ends of the JSON", b"Inference-Header-Content-Length: 2\r\ninference-header-content-length: 2\r\n",
             "the request has 2 headers 'Inference-Header-Content-Length', expected one"),
            ("two hosts", b"Host: y\r\n", "the request has 2 headers 'Host', expected one")):
        with s.connect() as c:
            c.sendall(post(good, extra) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            reply, more = read_answer(c), b""
            while reply and (piece := receive(c)):
                more += piece
            check(name, reply and reply.status == 400 and reply.headers.get("Connection") == "close" and reply.rest + more == b""
                  and (reply.headers.get("Content-Type") != "application/json" or reply.error() == sentence), reply and (reply.headers, reply.body, more))
    for name, head, sentence in (
            ("no host at all", b"GET /healthz HTTP/1.1\r\nX: y\r\n", "the request has no header 'Host'"),
            ("nor in a later version", b"GET /healthz HTTP/1.2\r\n", "the request has no header 'Host'"),
            ("a space in the path", b"GET /health z HTTP/1.1\r\nHost: x\r\n", "the path or an argument has a space"),
            ("a version that is none", b"GET /healthz x HTTP/1.1\r\nHost: x\r\n", "the path or an argument has a space"),
            ("one in an argument", b"GET /healthz?a=b c HTTP/1.1\r\nHost: x\r\n", "the path or an argument has a space"),
            ("a length behind a space", b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n", "the name of a header has a space")):
        with s.connect() as c:
            c.sendall(head + b"\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            reply, more = read_answer(c), b""
            while reply and (piece := receive(c)):
                more += piece
            # Later versions of libmicrohttpd say it themselves, in HTML.
            check(name, reply and reply.status == 400 and reply.headers.get("Connection") == "close" and reply.rest + more == b""
                  and (reply.headers.get("Content-Type") != "application/json" or reply.error() == sentence), reply and (reply.headers, reply.body, more))
    same("HTTP/1.0 needs none", 200, s.raw(b"GET /healthz HTTP/1.0\r\n\r\n").status)
    check("it lives", s.alive())

    # ---- Too slow ----
    with s.connect() as c:
        c.sendall(post(good[:20], length=len(good)))
        start = time.monotonic()
        late = read_answer(c)
        same("half of a body, then silence", (408, "the request did not come within its time"), (late.status, late.error()))
        check("after its time", 0.9 < time.monotonic() - start < 10, time.monotonic() - start)
    with s.connect() as c:  # a header now and then: never silent, and never done
        c.sendall(b"POST /v1/search HTTP/1.1\r\n")
        end, answer = time.monotonic() + 10, b""
        c.settimeout(0.2)
        while time.monotonic() < end and not answer:
            try:
                c.sendall(b"X: y\r\n")
                answer = c.recv(1000)
            except TimeoutError:
                pass
            except OSError:
                answer = b"closed"
        check("headers one by one", answer.startswith(b"HTTP/1.1 408") or answer == b"closed", answer)
    check("it is counted", s.metric("wideout_expired_requests_total") >= 2)
    same("nobody left an answer unread", 0.0, s.metric("wideout_unread_answers_total"))

    # ---- Too many connections ----
    idle = [socket.create_connection(s.address) for _ in range(60)]
    time.sleep(0.2)
    full = s.get("/healthz")
    same("beyond the limit", (503, "there are more than 40 connections", "1"), (full.status, full.error(), full.headers.get("Retry-After")))
    idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    same("those before it are served", 200, read_answer(idle[0]).status)
    for c in idle:
        c.close()
    end = time.monotonic() + 10
    while s.get("/healthz").status != 200 and time.monotonic() < end:
        time.sleep(0.05)
    check("and it has room again", s.alive())
    same("it leaves with", 0, s.stop())
    same("it had nothing to say", "", s.stderr())

# ---- Bodies that never end, and answers that nobody reads: what all of them hold has a limit ----
with Server(GOLDEN + "index-prior.safetensors", "-q", "--max-body", "1000000") as s:
    most = s.get("/v1/info").json()["limits"]["held_bytes"]
    same("as its info says", 16000000, most)
    before, half = s.metric("process_resident_memory_bytes"), []
    for _ in range(60):
        half.append(socket.create_connection(s.address))
        half[-1].sendall(post(b" " * 900000, length=1000000))
    end = time.monotonic() + 20
    while s.metric("wideout_held_bytes") < most and time.monotonic() < end:
        time.sleep(0.02)
    held = s.metric("wideout_held_bytes")
    check("60 half-sent bodies hold what they may, and one more for each thread", most <= held <= most + 2000000, held)
    time.sleep(0.3)
    grown = s.metric("process_resident_memory_bytes") - before
    check("and so much memory, where they would take 60 MB", grown < 40e6 or os.environ.get("SAN"), grown)
    late = s.ask("/v1/search", b" " * 20000)
    check("another large body is refused", late.status == 503 and late.headers.get("Retry-After") == "1" and
          re.fullmatch("all requests together hold [0-9]+ bytes, no more are taken", late.error()), late.body)
    same("a small one is answered", 200, s.ask("/v1/search", good).status)
    for c in half:
        c.close()
    end = time.monotonic() + 10
    while s.metric("wideout_held_bytes") > 0 and time.monotonic() < end:
        time.sleep(0.02)
    same("all is given back", 0.0, s.metric("wideout_held_bytes"))
    unread = []
    for _ in range(3):  # ten million bytes each: more than the kernel takes off the server
        unread.append(socket.create_connection(s.address))
        unread[-1].sendall(post(floats(row) * 4096, b"Content-Type: application/octet-stream\r\n", b"/v1/search?k=64&exact=true"))
    end = time.monotonic() + 20
    while s.metric("wideout_held_bytes") < most and time.monotonic() < end:
        time.sleep(0.02)
    held = s.metric("wideout_held_bytes")
    check("so do answers", most <= held <= most + 22e6, held)
    same("a small one still comes", 200, s.ask("/v1/search", good).status)
    for c in unread:
        c.close()

# ---- JSON of many small parts: each would take a hundred times its bytes ----
with Server(GOLDEN + "index-prior.safetensors", "-q") as s:
    def many(piece, n=None):
        return b'{"forbid": [' + (piece + b",") * ((n or (1 << 24) // (len(piece) + 1) - 10) - 1) + piece + b"]}"

    def peak():
        with open(f"/proc/{s.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

    deep = s.ask("/v1/search", b'{"query": ' + b"[" * 3000 + b"]" * 3000 + b"}")
    check("deep nesting where so many lists may be", deep.status == 400 and "depth" in deep.error(), deep.body)
    before = peak()
    for path in ("/v1/search", "/v1/predict", "/v2/models/wideout/infer"):
        for piece, what in ((b"{}", "lists and objects, at most 9216 are taken"), (b"[]", "lists and objects, at most 9216 are taken"), (b"1", "values or more, at most "), (b'""', "values or more, at most ")):
            reply = s.ask(path, many(piece), {"Content-Type": "application/json"})
            check(f"16 MiB of {piece.decode()}: {path}", reply.status == 413 and what in reply.error(), reply.body)
    # Each thread may have kept a body's room from a request before: 49 MB were seen, where JSON's parts took 1.26 GB.
    check("take no more than the body itself, five times", peak() - before < 5 * 16384 or os.environ.get("SAN"), peak() - before)
    same("the most that are taken", "the object has neither query nor queries", s.ask("/v1/search", many(b"3", 4096 * 16 + 3 * 64 + 1023), {"Content-Type": "application/json"}).error())
    same("and one more", (413, "the body has 66753 values or more, at most 66752 are taken"),
         (lambda r: (r.status, r.error()))(s.ask("/v1/search", many(b"3", 4096 * 16 + 3 * 64 + 1025), {"Content-Type": "application/json"})))
    same("what is in a text is none", 400, s.ask("/v1/search", json.dumps({"text": ',[{\\"' * 100000}).encode(), {"Content-Type": "application/json"}).status)
    same("the largest request is answered", 200, s.ask("/v1/search", {"queries": [row] * 4096, "k": 1, "forbid": list(range(3)), "bias": {"5": 1}}).status)

    # Texts behind the JSON: no more are taken apart than are wanted.
    head = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 16 << 20}}]}).encode()
with Server(GOLDEN + "index-names.safetensors", "--net", GOLDEN + "network-xc.safetensors", "-q", "--max-body", str(17 << 20)) as s:
    before = peak()
    reply = s.ask("/v2/models/wideout/infer", head + bytes(16 << 20), {"Inference-Header-Content-Length": str(len(head)), "Content-Type": BYTES})
    same("4 million empty texts behind it", (400, "input 'text' has 2 texts or more, expected 1"), (reply.status, reply.error()))
    check("nor more of these", peak() - before < 40000 or os.environ.get("SAN"), peak() - before)

# ---- An answer that is read too slowly ----
# The socket is handed over, with a small buffer: else the kernel would take most of the answer.
with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    with open(folder + "/start", "w") as file:
        file.write(f'#!/bin/bash\nLISTEN_PID=$$ LISTEN_FDS=1 exec "{TOOL}" "$@" 3<&{listening.fileno()}\n')
    os.chmod(folder + "/start", 0o755)
    with Server(GOLDEN + "index-prior.safetensors", "-q", "--timeout", "1", program=folder + "/start", pass_fds=(listening.fileno(),)) as s:
        with socket.socket() as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            c.settimeout(5)
            c.connect(s.address)
            c.sendall(post(floats(row) * 4096, b"Content-Type: application/octet-stream\r\n", b"/v1/search?k=10"))
            end = time.monotonic() + 30
            while s.metric("wideout_unread_answers_total") == 0 and time.monotonic() < end:
                c.recv(8192)  # never silent, and not done in time
                time.sleep(0.1)
        same("is given up", 1.0, s.metric("wideout_unread_answers_total"))
        check("and the server lives", s.alive())
finish()
