"""Operation: reload in three ways, under load too; files that vanish; who may ask; the access log; systemd's way to start."""
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, predict, queries, read_answer, same

folder = tempfile.TemporaryDirectory()
here = folder.name + "/index"
rows = queries(GOLDEN + "log.safetensors")[:8]
kinds = {name: GOLDEN + f"index-{name}.safetensors" for name in ("prior", "popular", "screen")}


def checksum(path):
    done = subprocess.run([TOOL, "info", "--json", path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["metadata"]["xxh3.header"]


def put(path):
    """In place of the index, as it should be done: by rename."""
    shutil.copy(path, here + ".new")
    os.rename(here + ".new", here)


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def served(s):
    return s.get("/readyz").json().get("index")


sums = {name: checksum(path) for name, path in kinds.items()}
answers = {sums[name]: [[a["id"] for a in line["answers"]] for line in predict(path, GOLDEN + "log.safetensors")[:8]]
           for name, path in kinds.items()}
check("the indexes answer differently", len({json.dumps(a) for a in answers.values()}) == 3)

# ---- Three ways to reload ----
put(kinds["prior"])
with Server(here, "-q") as s:
    same("the first index", sums["prior"], served(s))
    put(kinds["popular"])
    time.sleep(0.1)
    same("a new file alone changes nothing", sums["prior"], served(s))
    s.process.send_signal(signal.SIGHUP)
    check("SIGHUP", until(lambda: served(s) == sums["popular"]), served(s))
    put(kinds["prior"])
    reply = s.ask("/admin/reload", b"")
    same("by request", (200, {"index": sums["prior"], "before": sums["popular"]}), (reply.status, reply.json()))
    same("and it is served", sums["prior"], served(s))

    with open(here + ".new", "wb") as file:
        file.write(b"no index")
    os.rename(here + ".new", here)
    reply = s.ask("/admin/reload", b"")
    check("a bad file is refused, and why", reply.status == 500 and f"; index {sums['prior']} stays" in reply.error(), reply.body)
    same("what was served stays", answers[sums["prior"]][0],
         [a["id"] for a in s.ask("/v1/search", {"query": rows[0]}).json()["results"][0]["answers"]])
    check("standard error says so too", until(lambda: here + ": " in s.stderr() and "stays" in s.stderr()), s.stderr())
    os.unlink(here)
    reply = s.ask("/admin/reload", b"")
    check("a file that is gone", reply.status == 500 and "No such file" in reply.error(), reply.body)
    same("changes nothing", (200, sums["prior"]), (s.ask("/v1/search", {"query": rows[0]}).status, served(s)))
    same("reloads are counted", (2.0, 2.0), (s.metric('wideout_reloads_total{result="ok"}'), s.metric('wideout_reloads_total{result="failed"}')))
    put(GOLDEN + "index-names.safetensors")
    same("an index of other dimensions is taken", 200, s.ask("/admin/reload", b"").status)
    same("and asked accordingly", "query 0 has 16 numbers, the index takes 8", s.ask("/v1/search", {"query": rows[0]}).error())

# Names of files, and what is in them, are no commands to a terminal, and no lines of a log.
evil = folder.name + "/in\x1b[31m\nwideout serve: forged\x7f\u009b1m\u202edex"
clean = evil.replace("\x1b", "\\u001b").replace("\n", "\\u000a").replace("\x7f", "\\u007f").replace("\u009b", "\\u009b").replace("\u202e", "\\u202e")
shutil.copy(kinds["prior"], evil)
with Server(evil, "-q", "--access-log", folder.name + "/evil.log") as s:
    os.unlink(evil)
    same("a reload that fails", 500, s.ask("/admin/reload", b"").status)
    same("is one line, which a terminal shows as it is", f"wideout serve: {clean}: the file cannot be opened: No such file or directory; index {sums['prior']} stays\n", s.stderr())
    s.get("/%C2%9B31m%E2%80%AE")
    with open(folder.name + "/evil.log", "rb") as file:
        log = file.read()
    check("so is the access log", b'"/\\u009b31m\\u202e"' in log and b"\xc2\x9b" not in log, log)

put(kinds["prior"])
with Server(here, "--watch") as s:
    put(kinds["popular"])
    check("a file that changes is seen", until(lambda: served(s) == sums["popular"]), served(s))
    check("and told", until(lambda: f"index {sums['popular']} is served, {sums['prior']} before" in s.stderr()), s.stderr())
    with open(here + ".new", "wb") as file:
        file.write(b"\0" * 100)
    os.rename(here + ".new", here)
    check("a bad one too", until(lambda: "stays" in s.stderr()), s.stderr())
    time.sleep(2.5)
    same("once", 1, s.stderr().count("stays"))
    put(kinds["screen"])
    check("and the next good one is taken", until(lambda: served(s) == sums["screen"]), served(s))

# A file that is replaced while the server starts: nobody reads its first line, for which there is no room, so it comes no
# further than that.
put(kinds["prior"])
read_end, write_end = os.pipe()
os.set_blocking(write_end, False)
try:
    while True:
        os.write(write_end, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(write_end, True)
with socket.create_server(("127.0.0.1", 0)) as listening:
    port = listening.getsockname()[1]
process = subprocess.Popen([TOOL, "serve", "--listen", f"127.0.0.1:{port}", "--watch", here], stdout=write_end, stderr=subprocess.DEVNULL)
os.close(write_end)


def index_at_port():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as reply:
            return json.load(reply)["index"]
    except OSError:
        return None


check("while it starts", until(lambda: index_at_port() == sums["prior"]))
put(kinds["popular"])
with open(read_end, "rb") as out:
    line = out.readline()
    check("a file that changes before it looks is seen too", b"serving" in line and until(lambda: index_at_port() == sums["popular"]), line)
    process.terminate()
    same("it leaves with", 0, process.wait(30))


# All files are watched, a layer's biases too.
def npy(path, shape, values):
    head = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)).ljust(117) + "\n"
    with open(path + ".new", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%df" % len(values), *values))
    os.rename(path + ".new", path)


layer, bias = folder.name + "/layer.npy", folder.name + "/bias.npy"
npy(layer, "(3, 2)", [1, 0, 0, 1, 1, 1])
for name, value in (("first", 0), ("second", 5)):
    npy(bias, "(3,)", [value, 0, 0])
    subprocess.run([TOOL, "build", "-q", "--layer", layer, "--bias", bias, "--method", "full", "--weights", "none", "-o", f"{folder.name}/{name}"],
                   check=True, capture_output=True)
npy(bias, "(3,)", [0, 0, 0])
put(folder.name + "/first")
with Server(here, "--layer", layer, "--bias", bias, "--watch") as s:
    put(folder.name + "/second")
    check("an index of other biases has to wait", until(lambda: "the layer is not the one" in s.stderr()), s.stderr())
    npy(bias, "(3,)", [5, 0, 0])
    check("for them", until(lambda: served(s) == checksum(folder.name + "/second")), s.stderr())

# ---- Reloads under load: no answer is lost, none is of two indexes ----
put(kinds["prior"])
with Server(here, "-q") as s:
    wrong, seen, stop = [], set(), threading.Event()
    body = json.dumps({"queries": rows}).encode()
    message = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def load():
        with socket.create_connection(s.address, timeout=30) as c:
            while not stop.is_set():
                c.sendall(message)
                reply = read_answer(c)
                if reply is None or reply.status != 200:
                    wrong.append(reply and reply.body)
                    return
                value = reply.json()
                seen.add(value["index"])
                got = [[a["id"] for a in r["answers"]] for r in value["results"]]
                if value["index"] != reply.headers["X-Wideout-Index"] or answers[value["index"]] != got:
                    wrong.append(reply.body)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for t in threads:
        t.start()
    files = before = None
    for i in range(40):
        put(list(kinds.values())[i % 3])
        if s.ask("/admin/reload", b"").status != 200:
            wrong.append("reload")
        if i == 9:
            files, before = s.metric("process_open_fds"), s.metric("process_resident_memory_bytes")
    stop.set()
    for t in threads:
        t.join()
    same("40 reloads under load: nothing is lost or mixed", [], wrong[:3])
    same("all three were seen", set(sums.values()), seen)
    check("files do not pile up", s.metric("process_open_fds") <= files, (files, s.metric("process_open_fds")))
    grown = s.metric("process_resident_memory_bytes") - before
    check("nor does memory", grown < 8 << 20 or os.environ.get("SAN"), grown)
    pending = [threading.Thread(target=lambda: s.ask("/admin/reload", b"")) for _ in range(5)]
    for t in pending:
        t.start()
    for t in pending:
        t.join(20)
    check("five at once are all answered", not any(t.is_alive() for t in pending))
    same("it leaves with", 0, s.stop())

# ---- The file is cut short under the server ----
put(kinds["prior"])
with Server(here, "-q") as s:
    same("first it answers", 200, s.ask("/v1/search", {"query": rows[0], "exact": True}).status)
    os.truncate(here, 0)
    gone = "a file that is served was shortened or overwritten while it was in use"
    reply = s.ask("/v1/search", {"query": rows[0], "exact": True})
    same("then it says what is wrong", (503, gone), (reply.status, reply.error()))
    same("and is not ready", (503, gone), (s.get("/readyz").status, s.get("/readyz").error()))
    same("but alive", 200, s.get("/healthz").status)
    same("nobody gets an answer out of it", 503, s.ask("/v1/search", {"query": rows[1]}).status)
    reply = s.ask("/admin/reload", b"")
    same("an empty file is no index", 500, reply.status)
    put(kinds["popular"])
    same("a good one heals it", (200, sums["popular"]), (s.ask("/admin/reload", b"").status, served(s)))
    same("it answers again", 200, s.ask("/v1/search", {"query": rows[0], "exact": True}).status)

# One that is overwritten in place, as by cp: what is whole is served, and nobody is answered from what is not.
put(kinds["prior"])
with Server(here, "-q") as s:
    with open(here, "r+b") as file:
        file.seek(os.path.getsize(here) // 2)
        file.write(b"\x55" * 64)
    check("other bytes are noticed, though none is missing", until(lambda: s.get("/readyz").status == 503), s.stderr())
    reply = s.ask("/v1/search", {"query": rows[0]})
    same("nobody is answered from them", (503, gone), (reply.status, reply.error()))
    time.sleep(2.5)
    same("standard error says so once", (1, 1), (s.stderr().count(gone + "; nobody is answered until another is opened"), s.stderr().count("stays")))
    shutil.copyfile(kinds["popular"], here)
    check("a whole one is served by itself", until(lambda: served(s) == sums["popular"]), s.stderr())
    got = s.ask("/v1/search", {"queries": rows}).json()
    same("by its own answers", (sums["popular"], answers[sums["popular"]]), (got["index"], [[a["id"] for a in r["answers"]] for r in got["results"]]))
    reloads = s.metric('wideout_reloads_total{result="ok"}')
    os.utime(here)
    check("a new time alone is a reload", until(lambda: s.metric('wideout_reloads_total{result="ok"}') > reloads))
    same("and no more", (200, sums["popular"]), (s.get("/readyz").status, served(s)))
    same("it leaves with", 0, s.stop())

# Two layers of one size, the second backwards, and requests without a pause while one is copied over the other: no answer is
# out of the new bytes under the old checksum. One that is cut short within a page, where reads give zeros and no signal, is
# noticed with the next request.
values = [((i * 7919 + j * 104729) % 1009 - 504) / 504 for i in range(400) for j in range(16)]
twins = {}
for name, matrix in (("ahead", values), ("backwards", [x for i in range(399, -1, -1) for x in values[i * 16: i * 16 + 16]])):
    npy(layer, "(400, 16)", matrix)
    subprocess.run([TOOL, "build", "-q", "--layer", layer, "--method", "full", "-o", f"{folder.name}/{name}"], check=True, capture_output=True)
    twins[checksum(f"{folder.name}/{name}")] = [a["id"] for a in predict(f"{folder.name}/{name}", GOLDEN + "log.safetensors")[0]["answers"]]
same("they answer differently, and are as long", (2, 1), (len({str(a) for a in twins.values()}), len({os.path.getsize(f"{folder.name}/{name}") for name in ("ahead", "backwards")})))
put(folder.name + "/ahead")
with Server(here, "-q") as s:
    wrong, refused, seen, stop = [], [], set(), threading.Event()
    body = json.dumps({"query": rows[0], "k": len(next(iter(twins.values())))}).encode()
    message = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def ask_on():
        with socket.create_connection(s.address, timeout=30) as c:
            while not stop.is_set():
                c.sendall(message)
                reply = read_answer(c)
                if reply.status != 200:
                    refused.append((reply.status, reply.error(), reply.headers.get("X-Wideout-Index")))
                    continue
                seen.add(reply.headers["X-Wideout-Index"])
                if [a["id"] for a in reply.json()["results"][0]["answers"]] != twins[reply.headers["X-Wideout-Index"]]:
                    wrong.append(reply.body)

    threads = [threading.Thread(target=ask_on) for _ in range(3)]
    for t in threads:
        t.start()
    for name in ("backwards", "ahead") * 3:
        shutil.copyfile(f"{folder.name}/{name}", here)
        check("copied over what is served: it is served", until(lambda: served(s) == checksum(f"{folder.name}/{name}")), s.stderr())
    stop.set()
    for t in threads:
        t.join()
    same("no answer is out of one under the name of the other", [], wrong[:3])
    same("both were seen", set(twins), seen)
    same("the others are refused", {(503, gone, None)}, set(refused))
    os.truncate(here, os.path.getsize(here) - 100)
    same("cut short within a page: nobody is answered", [503] * 20, [s.ask("/v1/search", {"query": rows[0]}).status for _ in range(20)])
    same("and it is not ready", 503, s.get("/readyz").status)
    same("it leaves with", 0, s.stop())

# One that was replaced by rename is another file: what is written to the new one does nothing to what is served.
put(folder.name + "/ahead")
with Server(here, "-q") as s:
    os.link(here, here + ".old")
    put(folder.name + "/backwards")
    os.truncate(here, 100)
    time.sleep(1.2)
    same("a new file that is overwritten", (200, ""), (s.ask("/v1/search", {"query": rows[0]}).status, s.stderr()))
    os.truncate(here + ".old", 5000)
    same("the old one, by another name", 503, s.ask("/v1/search", {"query": rows[0]}).status)
    put(folder.name + "/backwards")
    check("heals", until(lambda: s.ask("/v1/search", {"query": rows[0]}).status == 200), s.stderr())

# Somebody sets the time back: that is found by the time of the inode, within a second, and answers go on meanwhile. Where the new
# bytes are no whole index, nobody is answered from them.
put(folder.name + "/ahead")
with Server(here, "-q") as s:
    reloads = lambda: s.metric('wideout_reloads_total{result="ok"}')
    about = os.stat(here)

    def overwrite(data):
        with open(here, "r+b") as file:
            file.write(data)
        os.utime(here, ns=(about.st_atime_ns, about.st_mtime_ns))

    with open(folder.name + "/backwards", "rb") as file:
        whole = file.read()
    overwrite(whole)
    check("a file whose time was set back is served", until(lambda: served(s) == checksum(folder.name + "/backwards")), served(s))
    before = reloads()
    os.chmod(here, 0o640)
    check("a chmod is a reload", until(lambda: reloads() > before))
    same("and no more", (200, checksum(folder.name + "/backwards"), ""), (s.get("/readyz").status, served(s), s.stderr()))
    overwrite(whole[:-400] + b"\x55" * 400)
    check("one that is not whole is seen", until(lambda: s.get("/readyz").status == 503), s.stderr())
    reply = s.ask("/v1/search", {"query": rows[0]})
    same("nobody is answered from it", (503, gone), (reply.status, reply.error()))
    overwrite(whole)
    check("a whole one heals", until(lambda: s.get("/readyz").status == 200), s.stderr())
    before = reloads()
    os.link(here, here + ".link")
    put(folder.name + "/ahead")
    time.sleep(2.5)
    check("one that is replaced waits", served(s) == checksum(folder.name + "/backwards") and reloads() <= before + 1, (served(s), before, reloads()))
    same("it leaves with", 0, s.stop())

# Learning reads the cells too: it publishes nothing out of what is gone.
learning = folder.name + "/learning"
subprocess.run([TOOL, "build", "-q", "--layer", GOLDEN + "layer.safetensors", "--log", GOLDEN + "log.safetensors", "--router", "tree", "--nodes", "2",
                "--leaves", "4", "--lambda", "0.1", "--source", "labels", "-o", learning], check=True, capture_output=True)
put(learning)
with Server(here, "-q", "--learn") as s:
    feed = lambda: s.ask("/v1/feedback", {"queries": rows, "labels": [[9]] * len(rows)})
    same("feedback is taken", 200, feed().status)
    check("and published", until(lambda: s.metric("wideout_generation") == 1))
    os.truncate(here, 0)
    feed()
    check("then nothing is learned any more", until(lambda: s.metric("wideout_learning_stopped") == 1), s.stderr())
    time.sleep(1.2)
    same("nor published", 1.0, s.metric("wideout_generation"))
    same("feedback hears why", (503, gone), (feed().status, feed().error()))
    same("so do searches, and who asks whether it is ready", [(503, gone)] * 2, [(r.status, r.error()) for r in (s.ask("/v1/search", {"query": rows[0]}), s.get("/readyz"))])
    same("standard error says so once", 1, s.stderr().count(gone + "; nothing is learned until another is opened"))
    put(learning)
    same("a good one heals it", 200, s.ask("/admin/reload", b"").status)
    check("it learns again", until(lambda: feed().status == 200) and until(lambda: s.metric("wideout_generation") >= 2 and s.metric("wideout_learning_stopped") == 0), s.stderr())
    same("it leaves with", 0, s.stop())

# ---- It leaves under load: every request that is sent whole is answered ----
put(kinds["prior"])
body = json.dumps({"queries": rows}).encode()
message = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
ends, lost, codes, closed = [], [], [], []
for _ in range(6):
    with Server(here, "-q") as s:
        idle = socket.create_connection(s.address, timeout=30)
        all_ask = threading.Barrier(17, timeout=60)

        def keep_asking():
            with socket.create_connection(s.address, timeout=30) as c:
                c.sendall(message)
                read_answer(c)
                all_ask.wait()
                while True:
                    c.sendall(message)
                    reply = read_answer(c)
                    if reply is None or reply.status != 200:
                        lost.append(reply and reply.body)
                        return
                    if reply.headers.get("Connection") == "close":
                        closed.append(1)
                        return
        threads = [threading.Thread(target=keep_asking) for _ in range(16)]
        for t in threads:
            t.start()
        all_ask.wait()
        time.sleep(0.2)
        start = time.monotonic()
        codes.append(s.stop())
        ends.append(time.monotonic() - start)
        for t in threads:
            t.join()
        idle.close()
same("all are answered", ([], 96), (lost, len(closed)))
same("it leaves with", [0] * 6, codes)
check("soon, though a connection says nothing", max(ends) < 5 and min(ends) > 0.2, ends)

# ---- A thousand connections that say nothing cost little, and keep nobody waiting ----
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
put(kinds["prior"])
with Server(here, "-q") as s:
    before = s.metric("process_resident_memory_bytes")
    silent = [socket.create_connection(s.address, timeout=30) for _ in range(1000)]
    check("all are taken", until(lambda: s.metric("wideout_connections") >= 1000), s.metric("wideout_connections"))
    start = time.monotonic()
    same("searches beside them", [200] * 20, [s.ask("/v1/search", {"query": rows[0]}).status for _ in range(20)])
    check("take no longer", time.monotonic() - start < 5, time.monotonic() - start)
    grown = (s.metric("process_resident_memory_bytes") - before) / 1000
    check("each takes a few KiB", grown < 32768 or os.environ.get("SAN"), grown)
    start = time.monotonic()
    same("it leaves with", 0, s.stop())
    check("without waiting for them", time.monotonic() - start < 10, time.monotonic() - start)
    for c in silent:
        c.close()

# ---- Who may ----
token = "correct-horse-battery"
with open(folder.name + "/token", "w") as file:
    file.write(token + "\n")
put(kinds["prior"])
with Server(here, "-q") as s:
    ask = lambda **headers: s.ask("/admin/reload", b"", {k.replace("_", "-"): v for k, v in headers.items()})
    same("this machine may, without a token", 200, ask().status)
    same("a page of its own too", 200, ask(Origin=s.base).status)
    other = "a page of another origin may not ask for this"
    same("a page of another origin may not", (403, other), (ask(Origin="http://evil.example").status, ask(Origin="http://evil.example").error()))
    same("nor one of no origin", 403, ask(Origin="null").status)
    same("nor by a name that leads here", 403, ask(Host="evil.example", Origin="http://evil.example").status)
    for name in ("X-Forwarded-For", "X-Forwarded-Host", "x-forwarded-anything", "Forwarded", "Via", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP",
                 "Fastly-Client-IP", "X-Cluster-Client-IP"):
        same("nor through a proxy that says " + name, 403, ask(**{name: "203.0.113.9"}).status)
    for target, host, expected in (("http://evil", "127.0.0.1", 400), ("http://evil", "evil", 403), ("http://127.0.0.1", "evil", 400), ("http://127.0.0.1", "127.0.0.1", 200)):
        message = f"POST {target}/admin/reload HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        same(f"for {target}, of the host {host}", expected, s.raw(message.encode()).status)
    same("nor for another site", (403, other), (ask(Sec_Fetch_Site="cross-site").status, ask(Sec_Fetch_Site="cross-site").error()))
    same("nor for a neighbour", 403, ask(Sec_Fetch_Site="same-site").status)
    same("its own page may, or who typed it", [200, 200], [ask(Sec_Fetch_Site=site).status for site in ("same-origin", "none")])
    same("what follows a host is a port", [403, 403, 200], [ask(Host=h).status for h in ("127.0.0.1:evil.example", "localhost:80@evil", "localhost:80")])
    same("searches are for everyone", 200, s.ask("/v1/search", {"query": rows[0]}, {"Origin": "http://evil.example"}).status)
with Server(here, "-q", "--token-file", folder.name + "/token") as s:
    right = {"Authorization": "Bearer " + token}
    refused = s.ask("/v1/search", {"query": rows[0]})
    same("without the token nothing", (401, "Bearer"), (refused.status, refused.headers.get("WWW-Authenticate")))
    for wrong in ("Bearer " + token[:-1], "Bearer " + token + "x", "Bearer ", "Basic " + token, "Bearer " + token.upper()):
        same("nor with " + wrong, 401, s.ask("/v1/search", {"query": rows[0]}, {"Authorization": wrong}).status)
    same("with it all", [200] * 3, [s.ask("/v1/search", {"query": rows[0]}, right).status, s.get("/metrics", right).status,
                                    s.ask("/admin/reload", b"", right).status])
    same("health is for everyone", [200, 200, 200], [s.get(p).status for p in ("/healthz", "/readyz", "/v2/health/ready")])
    same("it says whether, and no more", ({"ready": True}, None), (s.get("/readyz").json(), s.get("/readyz").headers.get("X-Wideout-Index")))
    same("with the token which index too", sums["prior"], s.get("/readyz", right).json()["index"])
    same("a wrong one is none", {"ready": True}, s.get("/readyz", {"Authorization": "Bearer " + "x" * 22}).json())
    same("metrics are not", 401, s.get("/metrics").status)
    for path in ("/v2/models/x", "/v2/models/x/ready", "/v2/models/wideout/versions/x", "/v2/models/wideout/versions/x/ready"):
        closed = s.get(path)
        check("nor are names: " + path, closed.status == 401 and sums["prior"] not in closed.body.decode() and "wideout" not in closed.body.decode(), closed.body)
        same("with the token it is told", 404, s.get(path, right).status)
    same("and a token does not help another page", 403, s.ask("/admin/reload", b"", {**right, "Origin": "http://evil.example"}).status)
    same("nothing was said", "", s.stderr().replace(f"index {sums['prior']}", ""))
def own_address():
    """Of this machine, where it has one beyond loopback: nothing is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as c:
        try:
            c.connect(("203.0.113.1", 9))
            return c.getsockname()[0]
        except OSError:
            return None


alone = "without a token this machine alone may ask for this, by its loopback address"
own = own_address()
put(learning)
with Server(here, "-q", "--learn", "--listen", "0.0.0.0:0") as s:
    check("open to the world without a token: a warning",
          "can be reached from other machines, and no token is asked for (--token-file)" in s.stderr(), s.stderr())
    body = {"query": rows[0], "labels": [9]}
    same("by loopback it may be changed", [200, 200], [s.ask(path, b, {"Host": "127.0.0.1"}).status for path, b in (("/v1/feedback", body), ("/admin/reload", b""))])
    s.base = f"http://{own}:{s.address[1]}"
    if own is None:
        check("no peer beyond loopback: this machine has no other address # skip", True)
    else:  # the peer's address is this one then, too
        for host in (own, "127.0.0.1", "localhost"):
            same(f"beyond it not, as {host}", [(403, alone)] * 2, [(r.status, r.error()) for r in (s.ask("/v1/feedback", body, {"Host": host}), s.ask("/admin/reload", b"", {"Host": host}))])
        same("searches are for everyone there too", 200, s.ask("/v1/search", {"query": rows[0]}).status)
with Server(here, "-q", "--learn", "--listen", "0.0.0.0:0", "--token-file", folder.name + "/token") as s:
    s.base = f"http://{own or '127.0.0.1'}:{s.address[1]}"
    same("with the token it may, from anywhere", [401, 200, 200], [r.status for r in (s.ask("/admin/reload", b""), s.ask("/v1/feedback", body, right), s.ask("/admin/reload", b"", right))])
    same("and no warning", "", s.stderr())
try:
    with socket.create_server(("::1", 0), family=socket.AF_INET6):
        six = True
except OSError:
    six = False
    check("no IPv6 here # skip", True)
if six:
    with Server(here, "-q", "--learn", "--listen", "[::1]:0") as s:
        same("IPv6: where it listens", ("::1", ""), (s.address[0], s.stderr()))
        same("it answers, and may be changed", [200] * 3, [r.status for r in (s.ask("/v1/search", {"query": rows[0]}), s.ask("/v1/feedback", body), s.ask("/admin/reload", b""))])
        same("by its own name alone", 403, s.ask("/admin/reload", b"", {"Host": "evil.example"}).status)
put(kinds["prior"])
for text, sentence in (("short", "the token has 5 characters, expected 16 to 4096"),
                       ("has a space in the middle", "the token has a space, or what is no ASCII, at place 3")):
    with open(folder.name + "/bad", "w") as file:
        file.write(text)
    done = subprocess.run([TOOL, "serve", here, "--token-file", folder.name + "/bad"], capture_output=True, text=True)
    same("a token that is none", (1, f"wideout: {folder.name}/bad: {sentence}\n"), (done.returncode, done.stderr))

# ---- The access log ----
log = folder.name + "/access"
with Server(here, "-q", "--access-log", log) as s:
    s.ask("/v1/search", {"queries": rows, "k": 3})
    s.get("/%22%0a%00%ff")
    s.ask("/admin/reload", b"")
    os.rename(log, log + ".1")
    s.process.send_signal(signal.SIGHUP)
    check("a log that was moved is made anew", until(lambda: os.path.exists(log)))
    s.get("/healthz")
    until(lambda: os.path.getsize(log) > 0)
with open(log + ".1") as file:
    lines = [json.loads(line) for line in file]
same("a line for each request", [("POST", "/v1/search", 200, 8, 3, sums["prior"]), ("GET", '/"\n', 400, 0, 0, None),
                                 ("POST", "/admin/reload", 200, 0, 0, None)],
     [(x["method"], x["path"], x["status"], x["queries"], x["k"], x.get("index")) for x in lines])
same("with its peer", {"127.0.0.1"}, {x["peer"] for x in lines})
with open(log) as file:
    same("and the rest in the new file", ["/healthz"], [json.loads(line)["path"] for line in file])

# ---- The ready file: nothing else is destroyed by it ----
put(kinds["prior"])


def run_with_ready(path, meanwhile=lambda: None):
    """The server's exit code and standard error; it is ended once it answers."""
    process = subprocess.Popen([TOOL, "serve", "--listen", "127.0.0.1:0", "--ready-file", path, here], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if line:
        time.sleep(0.1)
        meanwhile()
        process.terminate()
    return process.wait(30), process.stderr.read()


place = folder.name + "/ready"
for end in (".new", ".tmp"):
    shutil.copy(here, place + end)
seen = []
same("a ready file", (0, ""), run_with_ready(place, lambda: seen.append(open(place).read())))
check("says where, and is gone at the end", seen and seen[0].startswith("127.0.0.1:") and not os.path.exists(place), seen)
same("files of a like name are as they were", [True, True], [open(place + end, "rb").read() == open(here, "rb").read() for end in (".new", ".tmp")])


def replace_ready():
    """By the file of another, with the same number where the system gives it away again."""
    number = os.stat(place).st_ino
    os.unlink(place)
    for i in range(64):
        with open(f"{place}.{i}.other", "w") as file:
            file.write("another's")
        if os.stat(file.name).st_ino == number:
            break
    os.rename(file.name, place)


same("what another put in its place stays", (0, ""), run_with_ready(place, replace_ready))
same("as it is", "another's", open(place).read())
os.unlink(place)
with open(folder.name + "/target", "w") as file:
    file.write("before")
os.symlink(folder.name + "/target", place)
same("a link", (0, ""), run_with_ready(place))
check("is written through, and stays", os.path.islink(place) and open(place).read().startswith("127.0.0.1:"))
os.unlink(place)
os.mkfifo(place)
same("a pipe that nobody reads is refused", (1, f"wideout: {place}: cannot be written: it is a pipe that nobody reads\n"), run_with_ready(place))
reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
same("one that is read", (0, ""), run_with_ready(place))
check("has the line, and stays", os.read(reader, 100).startswith(b"127.0.0.1:") and os.path.exists(place))
os.close(reader)
os.unlink(place)
os.mkdir(place)
same("a folder is refused", (1, f"wideout: {place}: cannot be written: Is a directory\n"), run_with_ready(place))

# ---- systemd: a socket that is handed over, and a word when it is ready ----
listening = socket.create_server(("127.0.0.1", 0))
listening.set_inheritable(True)
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.bind(folder.name + "/notify")
told.settimeout(30)
waiting = socket.create_connection(listening.getsockname())  # before anybody serves
process = subprocess.Popen(["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve -q "$1"', TOOL, here],
                           env={**os.environ, "NOTIFY_SOCKET": folder.name + "/notify"}, close_fds=False,
                           preexec_fn=lambda: os.dup2(listening.fileno(), 3))
try:
    same("it says that it is ready", b"READY=1", told.recv(100))
    waiting.settimeout(30)
    waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    same("a connection that waited is served", 200, read_answer(waiting).status)
finally:
    process.terminate()
    same("and it leaves with", 0, process.wait(30))
same("saying so", b"STOPPING=1", told.recv(100))
done = subprocess.run(["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve -q "$1" 3</dev/null', TOOL, here], capture_output=True,
                      text=True, timeout=30)
same("what is no socket is refused", (1, "wideout: the descriptor that LISTEN_FDS speaks of is no socket that listens\n"),
     (done.returncode, done.stderr))
if shutil.which("systemd-analyze"):
    done = subprocess.run(["systemd-analyze", "verify", "serve/systemd/wideout.socket"], capture_output=True, text=True)
    check("systemd takes the units", "wideout" not in done.stderr.replace("/usr/local/bin/wideout is not executable", ""), done.stderr)
finish()
