"""Learning: feedback in all its forms, what it changes and what it does not, the journal after kill -9, reloads, the shadow's
lessons, refusals, and who may teach."""
import array
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, "tests/serve")
from lib import GOLDEN, TOOL, Server, check, finish, floats, make_network, queries, same

folder = tempfile.TemporaryDirectory()
BYTES = "application/octet-stream"
rows = queries(GOLDEN + "log.safetensors")
base = folder.name + "/index"
journal = folder.name + "/journal"
subprocess.run([TOOL, "build", "-q", "--layer", GOLDEN + "layer.safetensors", "--log", GOLDEN + "log.safetensors", "--router", "tree",
                "--nodes", "2", "--leaves", "4", "--lambda", "0.1", "--source", "labels", "--prior", "0.5", "--probes", "1", "-o", base],
               check=True, capture_output=True)


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def candidates(s, query):
    reply = s.ask("/v1/search", {"query": query, "k": 64})
    return {a["id"] for a in reply.json()["results"][0]["answers"]}


def teach(s, query, label, times=40):
    return s.ask("/v1/feedback", {"queries": [query] * times, "labels": [[label]] * times})


def learned(s, n):
    return until(lambda: (s.metric("wideout_learned_queries") or 0) >= n)


def info(path):
    return json.loads(subprocess.run([TOOL, "info", "--json", path], capture_output=True, text=True, check=True).stdout)


# ---- Without --learn ----
with Server(base, "-q") as s:
    reply = s.ask("/v1/feedback", {"query": rows[0], "labels": [1]})
    same("a server that does not learn says so", (403, "this server does not learn: it was started without --learn"), (reply.status, reply.error()))
    same("and in its info", (False, 0), (s.get("/v1/info").json()["learns"], s.get("/v1/info").json()["generation"]))
    check("no generation without", "X-Wideout-Generation" not in s.ask("/v1/search", {"query": rows[0]}).headers)
try:
    Server(GOLDEN + "index-popular.safetensors", "-q", "--learn").stop()
    check("an index that cannot learn is refused", False)
except RuntimeError as e:
    check("an index that cannot learn is refused", "an index of method popular learns nothing from queries: evidence does; wideout build --method evidence makes one" in str(e), e)

# ---- Feedback ----
with Server(base, "-q", "--learn", "--learned", journal) as s:
    label = next(i for i in range(64) if i not in candidates(s, rows[0]))
    digits = s.get("/v1/info").json()["index"]
    first = s.ask("/v1/search", {"query": rows[0]})
    same("the first generation", "0", first.headers["X-Wideout-Generation"])
    reply = teach(s, rows[0], label)
    same("feedback is taken", (200, {"index": digits, "queued": 40}), (reply.status, reply.json()))
    check("and learned", until(lambda: label in candidates(s, rows[0])))
    after = s.ask("/v1/search", {"query": rows[0]})
    check("by another generation", int(after.headers["X-Wideout-Generation"]) >= 1, after.headers)
    same("of the same index", first.headers["X-Wideout-Index"], after.headers["X-Wideout-Index"])
    check("the prior knows it", after.json()["results"][0]["answers"][0]["id"] == label or label in candidates(s, rows[0]))
    check("metrics say how much", learned(s, 40) and s.metric("wideout_learned_cells") == 1 and s.metric("wideout_learned_entries_added") >= 1
          and s.metric("wideout_learned_dropped_total") == 0 and s.metric("wideout_generation") >= 1)
    same("raw feedback", 200, s.ask("/v1/feedback", floats(rows[1]) + floats(rows[2]) + array.array("i", [3, 4]).tobytes(), {"Content-Type": BYTES}).status)
    check("is learned too", learned(s, 42))

    # ---- Refusals ----
    too_long = "query 0: is not finite, or too long: its square is more than a float holds"
    for name, body, status, sentence in [
        ("no labels", {"query": rows[0]}, 400, "the object has no labels"),
        ("labels that are none", {"query": rows[0], "labels": 3}, 400, "labels is no list"),
        ("no label", {"query": rows[0], "labels": []}, 400, "labels of query 0: expected a list of one or more classes"),
        ("a class beyond", {"query": rows[0], "labels": [64]}, 400, "labels of query 0: 64 is not one of the 64 classes"),
        ("a class below", {"query": rows[0], "labels": [-1]}, 400, "labels of query 0: -1 is not one of the 64 classes"),
        ("half a class", {"query": rows[0], "labels": [1.5]}, 400, "labels of query 0: expected classes, by number or name"),
        ("a name, without names", {"query": rows[0], "labels": ["x"]}, 400, "labels of query 0: the index has no names of classes"),
        ("too few lists", {"queries": rows[:2], "labels": [[1]]}, 400, "labels has 1 lists, expected 2: one for each query"),
        ("a list of one", {"queries": rows[:2], "labels": [[1], 2]}, 400, "labels of query 1: expected a list of one or more classes"),
        ("no query", {"labels": [1]}, 400, "the object has no query, queries, text or features"),
        ("two of them", {"query": rows[0], "queries": rows[:1], "labels": [1]}, 400, "query and queries are the same thing: one of them will do"),
        ("a typing error", {"query": rows[0], "lables": [1]}, 400, "feedback has no member 'lables'"),
        ("a short query", {"query": rows[0][:3], "labels": [1]}, 400, "query 0 has 3 numbers, the index takes 16"),
        ("too large a number", {"query": [1e39] * 16, "labels": [1]}, 400, too_long),
        ("finite, and scores that are not", {"query": [3e38] + [0] * 15, "labels": [1]}, 400, too_long),
        ("text without a network", {"text": "a", "labels": [1]}, 400, "no network is served beside the index: it takes queries, not text"),
        ("too many labels", {"query": rows[0], "labels": [1] * 1001}, 413, "query 0 has 1001 labels, more than the 1000 that it may have"),
    ]:
        reply = s.ask("/v1/feedback", body)
        same(name, (status, sentence), (reply.status, reply.error()))
    for name, body, sentence in [
        ("raw, half a query", b"\0" * 60, "the body has 60 bytes, expected a multiple of 68: 16 floats a query, and behind all queries a label of each"),
        ("raw, no class", floats(rows[0]) + array.array("i", [64]).tobytes(), "labels of query 0: 64 is not one of the 64 classes"),
        ("raw, not a number", floats([float("nan")] * 16) + array.array("i", [1]).tobytes(), too_long),
        ("raw, finite, and scores that are not", floats(rows[0]) + floats([3e38] * 16) + array.array("i", [1, 1]).tobytes(), too_long.replace("0", "1")),
        ("raw, nothing", b"", "there are no queries"),
    ]:
        reply = s.ask("/v1/feedback", body, {"Content-Type": BYTES})
        same(name, (400, sentence), (reply.status, reply.error()))
    same("nothing of it was learned", 42.0, s.metric("wideout_learned_queries"))
    for header, value in (("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")):
        same(f"a page of another origin may not teach: {header}", 403, s.ask("/v1/feedback", {"query": rows[0], "labels": [1]}, {header: value}).status)
    same("nor may another machine, without a token", 403, s.ask("/v1/feedback", {"query": rows[0], "labels": [1]}, {"Host": "example.org"}).status)

    # ---- The journal ----
    try:
        Server(base, "-q", "--learn", "--learned", journal).stop()
        check("two servers do not share a journal", False)
    except RuntimeError as e:
        check("two servers do not share a journal", "another process writes to the journal" in str(e), e)
    s.process.kill()
    s.process.wait()
same("after kill -9 the journal has all", ("journal", 42, 42), tuple(info(journal)[k] for k in ("format", "queries", "labels")))
with open(journal, "ab") as file:
    file.write(b"WOJr\1\0\0\0half a record")
same("half a record is left out", (42, 21), (info(journal)["queries"], info(journal)["torn_bytes"]))
with Server(base, "-q", "--learn", "--learned", journal) as s:
    same("a new server has learned it all", (42.0, True), (s.metric("wideout_learned_queries"), label in candidates(s, rows[0])))
    other = next(i for i in range(64) if i not in candidates(s, rows[5]))
    teach(s, rows[5], other)
    check("and goes on", until(lambda: other in candidates(s, rows[5])))
    before = s.get("/v1/info").json()["generation"]
    shutil.copy(base, base + ".new")
    os.rename(base + ".new", base)
    same("after a reload", 200, s.ask("/admin/reload", b"").status)
    check("it is learned again", until(lambda: s.metric("wideout_generation") > before and {label} <= candidates(s, rows[0]) and {other} <= candidates(s, rows[5])))
    same("a reload to what cannot learn", 200, (shutil.copy(GOLDEN + "index-popular.safetensors", base + ".new"), os.rename(base + ".new", base + ".popular"), s.ask("/healthz"))[2].status)
    same("it ends well", 0, s.stop())
same("what was cut off is gone", 0, info(journal)["torn_bytes"])
done = subprocess.run([TOOL, "build", "-q", "--layer", GOLDEN + "layer.safetensors", "--log", GOLDEN + "log.safetensors", "--log", journal,
                       "--method", "popular", "--popular", "5", "-o", folder.name + "/rebuilt"], capture_output=True, text=True)
same("an index can be built from the log and the journal", (0, ""), (done.returncode, done.stderr))

# ---- A journal that others change, or that cannot be written: never in silence ----
def kept():
    try:
        return info(journal)["queries"]
    except (OSError, subprocess.CalledProcessError):
        return None


with Server(base, "-q", "--learn", "--learned", journal) as s:
    said, changes = "", 0
    had = kept()
    for name, change, left in (("cut to nothing", lambda: os.truncate(journal, 0), 0),
                               ("removed", lambda: os.unlink(journal), 0),
                               ("moved away", lambda: os.rename(journal, journal + ".old"), 0),
                               ("cut within a record", lambda: os.truncate(journal, 150), 1),
                               ("replaced by another", lambda: (shutil.copy(journal + ".old", journal + ".new"), os.rename(journal + ".new", journal)), 20)):
        change()
        changes += 1
        reply = teach(s, rows[3], 7, 20)
        same(f"a journal {name}: feedback is taken", 200, reply.status)
        check("and is in what is there now", until(lambda: kept() == left + 20), (left, kept()))
        check("and that is said once", until(lambda: s.stderr().count("it is opened anew, and goes on") == changes), s.stderr())
        same("and counted", float(changes), s.metric("wideout_journal_changes_total"))
    same("one that was moved has all that it had", 20, info(journal + ".old")["queries"])
    os.unlink(journal)
    check("it is noticed without feedback too", until(lambda: s.metric("wideout_journal_changes_total") == changes + 1 and kept() == 0))
    same("nothing was stopped by it", 0.0, s.metric("wideout_learning_stopped"))
    same("it ends well", 0, s.stop())

place = os.path.join(folder.name, "place")
os.mkdir(place)
with Server(base, "-q", "--learn", "--learned", place + "/journal") as s:
    teach(s, rows[3], 7, 20)
    check("a journal in a folder", learned(s, 20))
    os.rename(place, place + ".moved")
    same("the folder is gone: what comes first is taken", 200, teach(s, rows[4], 8, 30).status)
    check("then no more is", until(lambda: teach(s, rows[4], 9, 1).status == 503))
    reply = teach(s, rows[4], 9, 1)
    same("by a sentence", ("the journal cannot be written, and what is not kept is not learned", "1"), (reply.error(), reply.headers.get("Retry-After")))
    check("metrics and standard error say so", s.metric("wideout_learning_stopped") == 1 and s.stderr().count("no feedback is taken until it can be written") == 1, s.stderr())
    before = s.metric("wideout_learned_queries")
    check("searches go on", s.ask("/v1/search", {"query": rows[0]}).status == 200)
    os.mkdir(place)
    check("when it is there again, what was taken is kept and learned", until(lambda: s.metric("wideout_learned_queries") >= before + 30)
          and info(place + "/journal")["queries"] >= 30, s.stderr())
    check("and more is taken", teach(s, rows[4], 9, 1).status == 200 and s.metric("wideout_learning_stopped") == 0, s.stderr())
    check("it says so", s.stderr().count("it is written again; feedback is taken") == 1, s.stderr())
    shutil.rmtree(place)
    same("gone again", 200, teach(s, rows[4], 8, 30).status)
    check("no more", until(lambda: s.metric("wideout_learning_stopped") == 1))
    same("it ends well", 0, s.stop())
    check("and says what is lost", re.search("feedback of 3[0-9] queries was taken and is not in it", s.stderr()), s.stderr())

# Kills at any moment: every reader takes what is left, and no feedback that was answered long enough before is lost.
for round_ in range(3):
    os.unlink(journal)
    with Server(base, "-q", "--learn", "--learned", journal) as s:
        sent = [0]

        def send():
            try:
                while True:
                    s.ask("/v1/feedback", {"queries": rows[:20], "labels": [[1]] * 20})
                    sent[0] += 20
            except OSError:
                pass
        threads = [threading.Thread(target=send) for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(0.2 + 0.1 * round_)
        s.process.kill()
        s.process.wait()
        for t in threads:
            t.join()
    kept = info(journal)["queries"]
    check(f"killed while it writes, {round_}", 0 < kept <= sent[0] + 40, (kept, sent))

# ---- Searches while it learns: none fails, and answers are whole ----
with Server(base, "-q", "--learn") as s:
    failed, stop = [], threading.Event()

    def search():
        while not stop.is_set():
            reply = s.ask("/v1/search", {"queries": rows[:8], "k": 5})
            if reply.status != 200 or len(reply.json()["results"]) != 8:
                failed.append(reply.body)

    def feed(seed):
        i = seed
        while not stop.is_set():
            i = (i * 16807 + 1) % 2147483647
            reply = s.ask("/v1/feedback", {"query": rows[i % len(rows)], "labels": [i % 64]})
            if reply.status != 200:
                failed.append(reply.body)
    threads = [threading.Thread(target=search) for _ in range(2)] + [threading.Thread(target=feed, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    check("generations come", until(lambda: s.metric("wideout_generation") >= 3))
    stop.set()
    for t in threads:
        t.join()
    same("no request failed meanwhile", [], failed[:3])

# ---- The shadow's lessons ----
with Server(base, "-q", "--learn", "--half-life", "1000", "--shadow", "1") as s:
    body = b"".join(floats(row) for row in rows)

    def agreement():
        for _ in range(3):
            n = s.metric("wideout_shadow_checked_total") + len(rows)
            s.ask("/v1/search", body, {"Content-Type": BYTES})
            until(lambda: s.metric("wideout_shadow_checked_total") >= n)
        return s.get("/readyz").json()["agreement"]["at_5"]
    first = agreement()
    check("classes that the cells miss are evidence", until(lambda: s.metric("wideout_learned_entries_added") > 0), s.stderr())
    for _ in range(20):
        last = agreement()
        if last > first + 0.05:
            break
    check("so that agreement rises", last > first + 0.05, (first, last))

# ---- Removed classes never appear again: not by feedback, nor the shadow's lessons, nor a journal that names them ----
changing, lessons = folder.name + "/changing", folder.name + "/lessons"


def answered(s, query):
    return {a["id"] for a in s.ask("/v1/search", {"query": query, "k": 64, "exact": True}).json()["results"][0]["answers"]} | candidates(s, query)


shutil.copy(base, changing)
with Server(changing, "-q", "--learn", "--learned", lessons, "--shadow", "1") as s:
    best = s.ask("/v1/search", {"query": rows[0], "k": 1, "exact": True}).json()["results"][0]["answers"][0]["id"]
    teach(s, rows[0], best, 100)
    check("it learns a class", learned(s, 100) and until(lambda: best in candidates(s, rows[0])))
    subprocess.run([TOOL, "update", "-q", changing, "--remove", str(best), "-o", changing + ".new"], check=True, capture_output=True)
    os.rename(changing + ".new", changing)
    before = s.get("/v1/info").json()["generation"]
    same("an index without it", 200, s.ask("/admin/reload", b"").status)
    check("learns from the journal, which names it", until(lambda: s.metric("wideout_generation") > before))
    check("and does not answer it", best not in answered(s, rows[0]))
    reply = teach(s, rows[0], best, 1)
    same("feedback that names it is refused", (400, f"labels of query 0: class {best} was removed from the index"), (reply.status, reply.error()))
    reply = s.ask("/v1/feedback", floats(rows[1]) + floats(rows[0]) + array.array("i", [(best + 1) % 64, best]).tobytes(), {"Content-Type": BYTES})
    same("raw too", (400, f"labels of query 1: class {best} was removed from the index"), (reply.status, reply.error()))
    checked = s.metric("wideout_shadow_checked_total") + len(rows)
    s.ask("/v1/search", {"queries": rows})
    check("the shadow looks at all queries", until(lambda: s.metric("wideout_shadow_checked_total") >= checked))
    check("and teaches nothing of it", not any(best in answered(s, row) for row in rows))

# ---- Searches teach where their sender may: a web page that makes a browser search poisons nothing ----
for way in ((), ("--batch-window", "5ms")):
    with Server(base, "-q", "--learn", "--shadow", "1", *way) as s:
        kinds = [("/v1/search", {"queries": rows}), ("/v2/models/wideout/infer", {"inputs": [
            {"name": "queries", "datatype": "FP32", "shape": [len(rows), 16], "data": sum(rows, [])}]})]
        checked = 0

        def look(headers):
            global checked
            for path, body in kinds:
                same("a search is for everyone: " + path, 200, s.ask(path, json.dumps(body).encode(), headers).status)
                checked += len(rows)
            check("and is compared", until(lambda: s.metric("wideout_shadow_checked_total") + s.metric("wideout_shadow_dropped_total") >= checked))

        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}, {"X-Forwarded-For": "203.0.113.9"}):
            look(headers)
        time.sleep(1.5)
        same("but teaches nothing", (0.0, 0.0), (s.metric("wideout_learned_queries"), s.metric("wideout_generation")))
        look({})
        check("one of this machine teaches", until(lambda: s.metric("wideout_learned_queries") > 0 and s.metric("wideout_generation") > 0))

# ---- Names and texts, a token ----
index, net, features = make_network(folder.name)
with open(folder.name + "/token", "w") as file:
    file.write("a-token-of-some-length")
with open(folder.name + "/x/labels.txt") as file:
    names = file.read().splitlines()
with Server(index, "--net", net, "-q", "--learn", "--token-file", folder.name + "/token") as s:
    bearer = {"Authorization": "Bearer a-token-of-some-length"}
    same("without the token", 401, s.ask("/v1/feedback", {"text": features[0], "labels": [names[3]]}).status)
    for body in ({"text": features[0], "labels": [names[3], 4]}, {"text": features[:2], "labels": [[names[3]], [0]]},
                 {"features": {features[0]: 1}, "labels": [names[5]]}):
        reply = s.ask("/v1/feedback", body, bearer)
        same(f"{list(body)[0]} and names", 200, reply.status)
    reply = s.ask("/v1/feedback", {"text": features[0], "labels": ["no such class"]}, bearer)
    same("a name that is none", (400, "labels of query 0: no class is called 'no such class'"), (reply.status, reply.error()))
    check("they are learned", until(lambda: any(line == "wideout_learned_queries 4" for line in s.get("/metrics", bearer).body.decode().splitlines())))

# ---- A name that two classes have ----
with open(folder.name + "/twice", "w") as file:
    file.write("\n".join(["same"] + [f"class {i}" for i in range(1, 63)] + ["same"]) + "\n")
subprocess.run([TOOL, "build", "-q", "--layer", GOLDEN + "layer.safetensors", "--log", GOLDEN + "log.safetensors", "--router", "tree", "--nodes", "2",
                "--leaves", "4", "--names", folder.name + "/twice", "-o", folder.name + "/twins"], check=True, capture_output=True)
with Server(folder.name + "/twins", "-q", "--learn") as s:
    reply = s.ask("/v1/feedback", {"query": rows[0], "labels": ["class 7", "same"]})
    same("says nothing", (400, "labels of query 0: more than one class is called 'same', say which by its number"), (reply.status, reply.error()))
    same("numbers do, and names of one", 200, s.ask("/v1/feedback", {"query": rows[0], "labels": ["class 7", 0, 63]}).status)
finish()
