#!/usr/bin/python3
"""A model of builds and searches by wideout-mpi: mpi_model.py [FOLDER]. It measures constants with P = 1 and 2 ranks of one
thread, predicts the other numbers in $RANKS ("1 2 4") with them and measures these, and says what they mean for larger layers.

A build by a tree from n queries, a of which FULL is asked (all of them; with --source labels none):

  ask     a m d c_mul / (P T) + a k (P - 1) (8 bytes + c_merge) + a / 4096 gathers
  tree    n sqrt(n) (c_tree / (P T) + c_file / T)     a tree has some sqrt(n) nodes, with as many leaves
  alike   n c_fill                                    what every rank does in full: filling cells
  write   the shard, once

A build with --rows, of very many classes, asks FULL nothing. Of a flat tree of L = sqrt(m) leaves, whose centres are learned from S =
min(32 L, 2^19) rows:

  pairs   min(n, 2^16) d^2 c_pair / T                 what tells where the queries of a class are to be expected, on every rank
  centres S L d (c_centre / P + c_alike) / T
  place   m (L + 2 d) d c_place / (P T)               every class into its nearest leaf
  join    m c_join / P                                cells are filled

A rank's memory, in bytes, with its rows and the log mapped:

  rows    4 d m / P, and with int8 and bf16 rows 3 d m / P more
  classes 4 m / P, with --rows 12
  log     4 n d, and 12 n k of what queries need
  tree    4 r min(n, 2^19), the coordinates that it is learned from (r = 32, or d where that is less; of rows 4 d S)
  asking  8 k 4096 P
  fill    up to 8 m T, of which only pages with classes that the log needs are touched
  alone   what a process has that builds next to nothing

A query of a stream takes c_route / P + c_find + candidates c_score / P, and the exchange of its block; of FULL, m d c_mul / (P T).
c_find is what a query of small cells takes however few of its candidates are here. Constants are fitted to P = 1, and where a
part is not divided to P = 2; the others are not.

Times are CPU seconds of rank 0, which others on the machine change little: what an idle machine would take, but for
waiting. $MPIRUN starts the ranks (bench/mpi_hosts.sh: each on a host of its own, of network namespaces), $BUILD has the
programs; $M, $D, $N: classes, dimensions and queries (50000, 64, 40000); $ROUNDS (3): the median of so many. What is assumed
of the machines of the predictions: $CORES (16) each, $GBIT (10) a second and $WAIT_US (100) an exchange between them, $DISK (1)
GB a second. All of it in JSON goes to bench/results/mpi_model.json, or $RESULTS."""

import json
import math
import os
import statistics
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build")
MPIRUN = os.environ.get("MPIRUN", "mpirun")
M, D, N, ROUNDS = (int(os.environ.get(name, value)) for name, value in zip("M D N ROUNDS".split(), (50000, 64, 40000, 3)))
RANKS = sorted({1, 2} | {int(p) for p in os.environ.get("RANKS", "1 2 4").split()})
CORES, GBIT, WAIT_US, DISK = (float(os.environ.get(n, v)) for n, v in (("CORES", 16), ("GBIT", 10), ("WAIT_US", 100), ("DISK", 1)))
K, BLOCK, SAMPLE = 5, 4096, 1 << 19  # FULL's best of a query; queries an exchange; queries, or rows, that a tree is learned from
PAIRS, COORDINATES, MIB = 1 << 16, 32, 1 << 20
ROWS = "--router tree --method evidence --rows 1 --beam 4 --source labels --lambda 0 --thin 0 --keep 0 --cap 200 --weights int8-bf16"
POPULAR = 5000  # candidates of an index that scoring is measured with
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ.get("TMPDIR", "/tmp"), "wideout-mpi-model")
ENV = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_hwloc_base_binding_policy="none",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",
    OMPI_MCA_mpi_yield_when_idle="1",
)


def run(p, *words):
    out = subprocess.run([MPIRUN, "-n", str(p), *words], env=ENV, check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout


def phases(report):
    return {phase["phase"]: phase for phase in report["phases"]}


def build_it(p, data, *how):
    """What --json says of a build on rank 0."""
    layer, log = f"{FOLDER}/{data}/{'net' if p > 1 else 'layer.safetensors'}", f"{FOLDER}/{data}/train.log.safetensors"
    return json.loads(
        run(p, f"{BUILD}/wideout-mpi", "build", "--layer", layer, "--log", log, *(how or ("--router", "tree")), "-o", f"{FOLDER}/index-{p}",
            "-t", "1", "--json", "-q"))  # fmt: skip


def cpu_of(report):
    return {name: phase["cpu_s"] for name, phase in phases(report).items()}


def build_and_search(p, *how):
    """A build, and CPU seconds of searching a query, that is routing and scoring."""
    data, index = os.path.join(FOLDER, "data"), os.path.join(FOLDER, f"index-{p}")
    one = ["-t", "1", "--json", "-q"]
    build = build_it(p, "data", *how)
    found = json.loads(
        run(p, f"{BUILD}/wideout-mpi", "eval", "--index", index, "--log", f"{data}/test.log.safetensors", "--no-full",
            "--rounds", "5", *one))  # fmt: skip
    asked = 5 * found["n"]
    told = phases(found)
    search = sum(told[name]["cpu_s"] for name in ("routing", "search") if name in told)
    route = told["routing"]["cpu_s"] * p if "routing" in told else None  # of all ranks; at P = 1 it is a part of the search
    return build, search / asked, route and route / asked


def measure(p):
    build, search, route = build_and_search(p)
    cpu = cpu_of(build)
    file = os.path.getsize(os.path.join(FOLDER, f"index-{p}-00001-of-{p:05d}.safetensors"))
    rows = cpu_of(build_it(p, "data", "--route-d", str(D), *ROWS.split()))
    _, scoring, _ = build_and_search(p, "--method", "popular", "--popular", str(POPULAR))
    return {
        "ask": cpu["asking the exact layer"],
        "tree": cpu["learning the tree"],
        "fill": cpu["filling cells"],
        "search": search,
        "route": route or 0,
        "scoring": scoring,
        "file": file,
        "pairs": rows["asking the exact layer"],
        "centres": rows["learning the tree"],
        "place": rows["placing rows"],
        "join": rows["filling cells"],
        "peak": build["peak_mib"],
        "alone": build_it(p, "tiny")["peak_mib"],
    }


def median(p):
    rounds = [measure(p) for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def predict(c, job):
    """Seconds by phase of a job: p ranks, t threads, m, d, n, a, and the exchange between ranks."""
    p, t, m, d, n, a = (job[name] for name in "p t m d n a".split())
    leaves, sample = leaves_of(m)
    scale = min(n, SAMPLE) * math.sqrt(n)
    exchange = a * 8 * K * (p - 1) / job["bytes_s"] + math.ceil(a / BLOCK) * job["wait_s"] * math.ceil(math.log2(p) if p > 1 else 0)
    return {
        "ask": a * m * d * c["mul"] / (p * t) + a * K * (p - 1) * c["merge"] + exchange,
        "tree": scale * c["tree"] / (p * t) + n * math.sqrt(n) * c["file"] / t,
        "fill": n * c["fill"],
        "search": c["route"] / p + c["find"],
        "scoring": POPULAR * c["score"] / p,
        "pairs": min(n, PAIRS) * d * d * c["pair"] / t,
        "centres": sample * leaves * d * (c["centre"] / p + c["alike"]) / t,
        "place": m * (leaves + 2 * d) * d * c["place"] / (p * t),
        "join": m * c["join"] / p,
    }


def leaves_of(m):
    """Of a flat tree of the rows of so many classes, and how many rows it is learned from."""
    leaves = int(math.sqrt(m))
    return leaves, min(32 * leaves, SAMPLE, m)


def memory(job, kind="tree"):
    """Bytes of a rank by what they are: of a build by a tree with rows in F32, or with --rows and small rows."""
    p, t, m, d, n = (job[name] for name in "p t m d n".split())
    rows = kind == "rows"
    return {
        "rows": (7 if rows else 4) * d * m / p,
        "classes": (12 if rows else 4) * m / p,
        "log": 4 * n * d + 12 * n * K,
        "tree": 4 * d * leaves_of(m)[1] if rows else 4 * min(COORDINATES, d) * min(n, SAMPLE),
        "asking": 0 if rows else 8 * K * BLOCK * p,
        "fill": 8 * m * t,
    }


def constants(one, two, merge_ns):
    divided = 2 * (one["tree"] - two["tree"])
    leaves, sample = leaves_of(M)
    centres = max(2 * (one["centres"] - two["centres"]), 0)
    return {
        "mul": one["ask"] / (N * M * D),
        "merge": merge_ns / 1e9,
        "tree": divided / (min(N, SAMPLE) * math.sqrt(N)),
        "file": max(one["tree"] - divided, 0) / (N * math.sqrt(N)),
        "fill": one["fill"] / N,
        "score": one["scoring"] / POPULAR,
        "route": min(two["route"], one["search"]),
        "find": one["search"] - min(two["route"], one["search"]),
        "pair": one["pairs"] / (min(N, PAIRS) * D * D),
        "centre": centres / (sample * leaves * D),
        "alike": max(one["centres"] - centres, 0) / (sample * leaves * D),
        "place": one["place"] / (M * (leaves + 2 * D) * D),
        "join": one["join"] / M,
        "class_bytes": 2 * (one["file"] - two["file"]) / M,
    }


def make(name, m, d, n):
    data = f"{FOLDER}/{name}"
    if os.path.exists(f"{data}/made"):
        return
    os.makedirs(FOLDER, exist_ok=True)
    words = ["data", "synthetic", "-q", "-m", str(m), "-d", str(d), "-n", str(n), "-o", data]
    subprocess.run([f"{BUILD}/wideout", *words], check=True, stdout=subprocess.DEVNULL)
    for p in RANKS[1:]:  # dealt out by frequency, so that each has as many candidates
        words = ["shard", "--layer", f"{data}/layer.safetensors", "--log", f"{data}/train.log.safetensors", "-n", str(p), "-o", f"{data}/net"]
        subprocess.run([f"{BUILD}/wideout", *words], check=True, stdout=subprocess.DEVNULL)
    open(f"{data}/made", "w").close()


def main():
    about = json.loads(subprocess.run(["bench/about.sh", BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout)
    os.makedirs("bench/results", exist_ok=True)
    make("data", M, D, N)
    make("tiny", max(RANKS), 8, 50)
    measured = {p: median(p) for p in RANKS}
    wires = {p: [float(word) for word in run(p, f"{BUILD}/tests/mpi/collective", "time").split()] for p in RANKS[1:]}
    c = constants(measured[1], measured[2], wires[RANKS[-1]][2])

    print(f"constants, of {M:,} classes, d = {D}, {N:,} logged queries, one thread")
    print(f"  FULL, a number of a row       {1e9 * c['mul']:8.4f} ns; a class {1e9 * c['mul'] * D:8.2f} ns")
    print(f"  merging an answer             {1e9 * c['merge']:8.1f} ns, of each other rank")
    print(f"  a tree, of a query            {1e6 * c['tree'] * math.sqrt(N):8.2f} us, divided by P; {1e6 * c['file'] * math.sqrt(N):.2f} us that are not")
    print(f"  filling, of a query           {1e6 * c['fill']:8.2f} us, not divided")
    print(f"  searching, of a query         {1e6 * c['route']:8.2f} us by a tree, divided, {1e6 * c['find']:.2f} us of small cells, not, and {1e9 * c['score']:.2f} ns a candidate, divided")
    leaves, sample = leaves_of(M)
    print(f"  --rows: placing a class       {1e9 * c['place'] * (leaves + 2 * D) * D:8.1f} ns among {leaves} leaves, divided; {1e9 * c['place']:.4f} ns a number")
    print(f"  --rows: a centre's number     {1e9 * c['centre']:8.4f} ns of each sampled row, divided; {1e9 * c['alike']:.4f} ns that are not")
    print(f"  --rows: a pair's product      {1e9 * c['pair']:8.4f} ns, not divided; filling {1e9 * c['join']:.1f} ns a class, divided")
    print(f"  an index's file, a class      {c['class_bytes']:8.1f} bytes (rows in F32)")
    for p, (wait, speed, _) in wires.items():
        print(f"  an exchange of {p} ranks here   {wait:8.1f} us, and {speed / 1e6:.0f} MB a second")

    here = {"t": 1, "m": M, "d": D, "n": N, "a": N}
    print("\nrank 0's CPU seconds of a build, and microseconds of a query: model and measured")
    shown = [("ask", 1), ("tree", 1), ("fill", 1), ("search", 1e6), ("scoring", 1e6), ("centres", 1), ("place", 1), ("memory", 1)]
    heads = ["ask", "tree", "fill", "by the tree", f"{POPULAR} scored", "rows: centres", "rows: place", "memory, MiB"]
    print(f"{'':4}" + "".join(f"{head:>16}" for head in heads))
    model = {}
    for p, took in measured.items():
        job = dict(here, p=p, bytes_s=math.inf, wait_s=0)
        model[p] = said = predict(c, job)
        said["memory"], took["memory"] = took["alone"] + sum(memory(job).values()) / MIB, took["peak"]
        cells = [f"{said[n] * u:7.2f}{took[n] * u:8.2f}" for n, u in shown]
        print(f"P={p} " + "".join(f"{cell:>16}" for cell in cells))

    print(f"\nlarger layers, d = 64, 10^7 logged queries; machines of {CORES:.0f} cores, {GBIT:g} Gbit/s, {WAIT_US:g} us, {DISK:g} GB/s")
    rows = []
    for m, p in ((10**8, 4), (10**9, 64)):
        n = 10**7
        job = {"p": p, "t": CORES, "m": m, "d": 64, "n": n, "a": n, "bytes_s": GBIT * 1e9 / 8, "wait_s": WAIT_US / 1e6}
        s = predict(c, job)
        shard = m / p * (3 * 64 + 8)  # int8, bf16 and a scale and a bias each
        write = shard / (DISK * 1e9)
        search = s["search"] / CORES + (4 * 64 + 8 + (8 * K + 4) * (p - 1)) / job["bytes_s"] + 3 * job["wait_s"] / 1024
        full = m * 64 * c["mul"] / (p * CORES)
        kept = memory(job, "rows")
        gb = {"memory": sum(kept.values()) - kept["fill"], "mapped": 4 * 64 * (m / p + n), "fill": kept["fill"]}
        with_rows = {name: s[name] for name in ("pairs", "centres", "place", "join")}
        rows.append({"m": m, "p": p, "shard_bytes": shard, "search_us": 1e6 * search, "full_us": 1e6 * full, "write_s": write,
                     **{name: s[name] for name in ("ask", "tree", "fill")}, "with_rows_s": with_rows, "memory_bytes": gb})  # fmt: skip
        print(f"  {m:.0e} classes, P = {p}: {s['ask'] / 60:.1f} min asking, {s['tree'] / 60:.1f} the tree, "
              f"{s['fill'] / 60:.1f} filling, {write / 60:.1f} writing")  # fmt: skip
        print(f"    with --rows, which asks nothing: {sum(with_rows.values()) / 60:.2f} min, of them {with_rows['centres'] / 60:.2f} centres, "
              f"{with_rows['place'] / 60:.2f} placing, {with_rows['join'] / 60:.2f} filling")  # fmt: skip
        print(f"    a rank's memory with int8 and bf16 rows: {gb['memory'] / 1e9:.1f} GB, of them {gb['mapped'] / 1e9:.1f} mapped; "
              f"while cells are filled up to {gb['fill'] / CORES / 1e9:.1f} GB more for each thread")  # fmt: skip
        print(f"    a shard in int8 and bf16 has {shard / 1e9:.1f} GB; a query in a stream {1e6 * search:.2f} us, of FULL {full * 1e6:.0f} us")
    with open(os.environ.get("RESULTS", "bench/results/mpi_model.json"), "w") as file:
        json.dump({**about, "mpirun": MPIRUN, "m": M, "d": D, "n": N, "constants": c, "measured": measured, "model": model,
                   "wires": wires, "larger": rows}, file, indent=1)  # fmt: skip


main()
