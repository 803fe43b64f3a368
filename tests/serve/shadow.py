"""The shadow check, and requests that share a batch."""
import json
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, floats, predict, queries, read_answer, read_raw, same

BYTES = "application/octet-stream"
rows = queries(GOLDEN + "log.safetensors")
popular, prior = GOLDEN + "index-popular.safetensors", GOLDEN + "index-prior.safetensors"


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def expected_agreement(index, *how):
    """By the tool's own answers: of the best among all classes, and of the five best."""
    log = GOLDEN + "log.safetensors"
    ours = [[a["id"] for a in x["answers"]] for x in predict(index, "-k", "5", log)]
    full = [[a["id"] for a in x["answers"]] for x in predict(index, "-k", "5", "--exact", *how, log)]
    n = len(ours)
    return (sum(a[0] == b[0] for a, b in zip(ours, full)) / n, sum(len(set(a) & set(b)) / 5 for a, b in zip(ours, full)) / n)


# ---- Shadow ----
body = b"".join(floats(row) for row in rows)
at1, at5 = expected_agreement(popular)
check("an index that is worse than exact, and not by much or all", 0.2 < at1 < 0.97, at1)


def low(s):
    """Its threads of the lowest priority."""
    tasks = f"/proc/{s.process.pid}/task"
    return sum(open(f"{tasks}/{task}/stat").read().rsplit(")", 1)[1].split()[16] == "19" for task in os.listdir(tasks))


with Server(popular, "-q") as s:
    usual = low(s)
with Server(popular, "-q", "--shadow", "1", "--alarm", "0.98") as s:
    check("the shadow is one thread of low priority", until(lambda: low(s) == usual + 1) or os.nice(0) == 19, (usual, low(s)))
    same("nothing is known at first", None, s.get("/readyz").json().get("agreement"))
    # Few enough at a time that none is dropped.
    n = 10 * len(rows)
    for i in range(10):
        s.ask("/v1/search", body, {"Content-Type": BYTES})
        until(lambda: s.metric("wideout_shadow_checked_total") >= (i + 1) * len(rows))
    same("every query is checked", (float(n), 0.0), (s.metric("wideout_shadow_checked_total"), s.metric("wideout_shadow_dropped_total")))
    got = s.get("/readyz").json()["agreement"]
    same("how many", n, got["queries"])
    check("agreement on the best", abs(got["at_1"] - at1) < 1e-4, (got, at1))
    check("and on five", abs(got["at_5"] - at5) < 1e-2, (got, at5))
    check("with bounds around it", got["low_1"] < at1 < got["high_1"] and got["low_5"] < at5 < got["high_5"]
          and got["high_1"] - got["low_1"] < 0.3, got)
    same("in the metrics too", got["at_1"], round(s.metric('wideout_agreement{k="1"}'), 4))
    same("that is an alarm", (True, 1.0), (got["alarm"], s.metric("wideout_shadow_alarm")))
    check("said once", s.stderr().count("alarm: index") == 1 and "below 0.98" in s.stderr(), s.stderr())
    same("and it is still ready", 200, s.get("/readyz").status)
    s.ask("/v1/search", {"queries": rows, "exact": True})
    s.ask("/v1/search", {"query": rows[0]})
    check("exact answers are not checked", until(lambda: s.metric("wideout_shadow_checked_total") == n + 1))
    for _ in range(6):  # more than the queue holds, in one go
        s.ask("/v1/search?k=1", body * (4000 // len(rows)), {"Content-Type": BYTES})
    check("what comes too fast is dropped", until(lambda: s.metric("wideout_shadow_dropped_total") > 0), s.metric("wideout_shadow_checked_total"))
    same("it leaves with", 0, s.stop())
with Server(popular, "-q", "--shadow", "0.1") as s:
    for i in range(10):
        s.ask("/v1/search?k=1", body * (1000 // len(rows)), {"Content-Type": BYTES})
        time.sleep(0.05)
    n = 10 * len(rows) * (1000 // len(rows))
    drawn = lambda: s.metric("wideout_shadow_checked_total") + s.metric("wideout_shadow_dropped_total")
    check("a tenth of them", until(lambda: abs(drawn() - n / 10) < 0.03 * n), (drawn(), n))
# A prior changes answers on purpose: both comparisons are told, and the alarm goes by what the cells missed.
missed, changed = expected_agreement(prior), expected_agreement(prior, "--no-prior")
check("the prior changes more than the cells miss", changed[0] < missed[0] - 0.05, (missed, changed))
with Server(prior, "-q", "--shadow", "1", "--alarm", str((missed[0] + changed[0]) / 2)) as s:
    for i in range(8):
        s.ask("/v1/search", body, {"Content-Type": BYTES})
        until(lambda: s.metric("wideout_shadow_checked_total") >= (i + 1) * len(rows))
    got = s.get("/readyz").json()["agreement"]
    check("with the same scores over all classes", abs(got["at_1"] - missed[0]) < 1e-4 and abs(got["at_5"] - missed[1]) < 1e-2, (got, missed))
    check("with the layer", abs(got["layer"]["at_1"] - changed[0]) < 1e-4 and abs(got["layer"]["at_5"] - changed[1]) < 1e-2, (got, changed))
    check("with bounds", got["layer"]["low_1"] < changed[0] < got["layer"]["high_1"] < got["low_1"], got)
    same("both in the metrics", (got["at_1"], got["layer"]["at_1"], got["layer"]["low_5"]),
         tuple(round(s.metric(name), 4) for name in ('wideout_agreement{k="1"}', 'wideout_layer_agreement{k="1"}', 'wideout_layer_agreement_low{k="5"}')))
    same("what the prior changes is no alarm", (False, ""), (got["alarm"], s.stderr()))
    ids = lambda **how: [[a["id"] for a in r["answers"]] for r in s.ask("/v1/search", {"queries": rows, "exact": True, **how}).json()["results"]]
    tool = lambda *how: [[a["id"] for a in x["answers"]] for x in predict(prior, "-k", "5", "--exact", *how, GOLDEN + "log.safetensors")]
    same("exact answers keep the prior", tool(), ids())
    same("unless it is false", tool("--no-prior"), ids(prior=False))
    raw = s.ask("/v1/search?exact=true&prior=false", body, {"Content-Type": BYTES, "Accept": BYTES})
    same("behind a question mark too", sum(tool("--no-prior"), []), read_raw(raw.body, len(rows), 5)[0])
with Server(prior, "-q", "--shadow", "1", "--alarm", "0.3") as s:
    s.ask("/v1/search", body, {"Content-Type": BYTES})
    until(lambda: s.metric("wideout_shadow_checked_total") > 0)
    same("no alarm where it is good enough", ("", 0.0), (s.stderr(), s.metric("wideout_shadow_alarm")))
done = subprocess.run([TOOL, "serve", prior, "--alarm", "0.9"], capture_output=True, text=True)
same("an alarm needs a shadow", 2, done.returncode)
done = subprocess.run([TOOL, "serve", GOLDEN + "index-bf16.safetensors", "--shadow", "0.5"], capture_output=True, text=True)
no_exact = "the index has no f32 rows, which exact answers need: build it with --weights f32, or give its layer with --layer FILE"
same("a shadow needs exact rows", (1, f"wideout: {GOLDEN}index-bf16.safetensors: {no_exact}\n"), (done.returncode, done.stderr))
bf16 = GOLDEN + "index-bf16.safetensors"
with Server(bf16, "-q") as s:
    reply = s.ask("/v1/search", {"query": rows[0], "exact": True})
    same("so do exact answers", (400, no_exact), (reply.status, reply.error()))
with Server(bf16, "-q", "--layer", GOLDEN + "layer.safetensors", "--shadow", "1") as s:
    got = s.ask("/v1/search", {"queries": rows, "exact": True}).json()["results"]
    full = predict(bf16, "-k", "5", "--exact", "--layer", GOLDEN + "layer.safetensors", GOLDEN + "log.safetensors")
    same("the layer has them", [[a["id"] for a in x["answers"]] for x in full], [[a["id"] for a in x["answers"]] for x in got])
    s.ask("/v1/search", {"queries": rows})
    check("and a shadow works", until(lambda: s.metric("wideout_shadow_checked_total") == len(rows)))
with Server(GOLDEN + "index-none.safetensors", "-q", "--layer", GOLDEN + "layer.safetensors") as s:
    same("an index without rows is served by its layer", 200, s.ask("/v1/search", {"query": rows[0]}).status)

# ---- Batches ----
expected = {k: [[a["id"] for a in x["answers"]] for x in predict(prior, "-k", str(k), GOLDEN + "log.safetensors")] for k in (2, 5)}
with Server(prior, "-q", "--batch-window", "5ms") as s:
    wrong, start = [], threading.Barrier(16, timeout=20)

    def ask(thread):
        with socket.create_connection(s.address, timeout=30) as c:
            for i in range(10):
                row, k = (thread * 7 + i) % len(rows), (2, 5)[(thread + i) % 2]
                bad = thread == 3 and i % 2  # one that fails must not take others with it
                data = floats([float("nan")] * 16) if bad else floats(rows[row])
                start.wait()
                if i % 3:
                    path, extra = b"/v1/search?k=%d" % k, b"Accept: application/octet-stream\r\n"
                    message = data
                else:
                    path, extra, bad = b"/v2/models/wideout/infer", b"", False
                    message = json.dumps({"inputs": [{"name": "queries", "shape": [1, 16], "datatype": "FP32", "data": rows[row]}],
                                          "parameters": {"k": k}, "id": f"{thread}-{i}"}).encode()
                c.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n%sContent-Length: %d\r\n\r\n"
                          % (path, extra, len(message)) + message)
                reply = read_answer(c)
                if bad:
                    if reply.status != 400 or reply.error() != "query 0: is not finite":
                        wrong.append(reply.body)
                elif reply.status != 200:
                    wrong.append(reply.body)
                elif i % 3:
                    if read_raw(reply.body, 1, k)[0] != expected[k][row]:
                        wrong.append((row, k))
                elif reply.json()["outputs"][0]["data"] != expected[k][row] or reply.json()["id"] != f"{thread}-{i}":
                    wrong.append(reply.body)

    threads = [threading.Thread(target=ask, args=(t,)) for t in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same("160 requests that share batches have their own answers", [], wrong[:3])
    batches, asked = s.metric("wideout_batch_queries_count"), s.metric("wideout_batch_queries_sum")
    check("and did share them", asked >= 150 and batches < asked / 1.5, (batches, asked))
    masked = s.ask("/v1/search", {"query": rows[0], "forbid": [expected[5][0][0]]})
    check("masks are answered at once", masked.status == 200 and masked.json()["results"][0]["answers"][0]["id"] != expected[5][0][0])
    for mask in ({"forbid": []}, {"require": []}, {"forbid": [], "require": []}):  # nothing in them: they share a batch too
        replies = [s.ask("/v1/search", {"query": rows[0], "k": 5, **mask}) for _ in range(3)]
        same(f"a mask of nothing: {mask}", [(200, expected[5][0])] * 3,
             [(r.status, [a["id"] for a in r.json()["results"][0]["answers"]]) for r in replies])
    begun = time.monotonic()
    with s.connect() as c:  # a request that waits for others when it all ends
        c.sendall(b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 64\r\n\r\n" + floats(rows[0]))
        s.process.terminate()
        reply = read_answer(c)
        check("one that waits at the end is answered, or was never begun", reply is None or reply.status == 200, reply and reply.status)
    same("it leaves with", 0, s.stop())
for text in ("200", "2h", "-1us", "2s"):
    done = subprocess.run([TOOL, "serve", prior, "--batch-window", text], capture_output=True, text=True)
    same("a window of " + text, (2, f"wideout serve: --batch-window takes a time up to 1s, as 200us, not '{text}' (see 'wideout serve --help')\n"),
         (done.returncode, done.stderr))
finish()
