#!/usr/bin/python3
"""A fastText tag model before and after: the same .bin, the same test file, from text to answers.

    fasttext_tags.py                             300 made-up tags, some seconds
    fasttext_tags.py --train F --test F          yours: lines with __label__ in front
    fasttext_tags.py ... --loss hs               fastText's own way to be fast, and what it loses

It runs the programs `fasttext` (of Debian) and `wideout` ($WIDEOUT names another one), each on one thread, as anybody
would from a shell. Where one of them is missing, or `wideout` cannot read fastText's models, it says so and ends.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

TOOL = os.environ.get("WIDEOUT", "wideout")


def run(*command):
    """What it prints, and the seconds that it took."""
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout, time.perf_counter() - began


def made_up(path, n, seed, n_tags=300):
    """Lines of five words; every tag has words of its own, and some tags are frequent."""
    typical, rng = random.Random(0), random.Random(seed)
    words = [[typical.randrange(3 * n_tags) for _ in range(5)] for _ in range(n_tags)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(n):
            tag = int(n_tags * rng.random() ** 2)
            line = [w if rng.random() < 0.8 else rng.randrange(3 * n_tags) for w in words[tag]]
            file.write(f"__label__tag{tag} {' '.join(f'word{w}' for w in line)}\n")


def missing(folder):
    """Why it cannot run here, or None."""
    for program in ("fasttext", TOOL):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    model = os.path.join(folder, "probe")
    made_up(model + ".txt", 50, 1, n_tags=3)
    run(
        "fasttext", "supervised", "-input", model + ".txt", "-output", model, "-dim", "4", "-epoch", "1", "-thread", "1"
    )
    can_read = subprocess.run([TOOL, "info", model + ".bin"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return None if can_read.returncode == 0 else f"this {TOOL} does not read fastText's models"


def hits(answers, test):
    """The share of lines whose first answer is one of their labels; lines without a label do not count."""
    n = right = 0
    with open(test, encoding="utf-8") as file:
        for line, answer in zip(file, answers.splitlines()):
            labels = [word for word in line.split() if word.startswith("__label__")]
            n += bool(labels)
            right += any(answer.split()[:1] == [label] for label in labels)
    return right / n


def answered(command, test, empty):
    """The answers to a test file, and the seconds without those that loading takes."""
    loading = min(run(*command, empty)[1] for _ in range(3))
    took = []
    for _ in range(3):
        answers, seconds = run(*command, test)
        took.append(seconds)
    return answers, sorted(took)[1] - loading, loading


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="lines with __label__")
    parser.add_argument("--test", help="others")
    parser.add_argument("--epochs", default="5")
    parser.add_argument("--loss", default="softmax", choices=["softmax", "ova", "hs"])
    parser.add_argument("--max-time", default="10", help="seconds that the tuner may take (10)")
    args = parser.parse_args()
    if bool(args.train) != bool(args.test):
        parser.error("--train and --test go together")
    with tempfile.TemporaryDirectory() as folder:
        why = missing(folder)
        if why:
            print(f"fasttext_tags.py is left out: {why}")
            return 0
        train, test = args.train, args.test
        model, index, log, empty = (os.path.join(folder, name) for name in ("model", "index", "train.log", "empty.txt"))
        if not train:
            train, test = os.path.join(folder, "train.txt"), os.path.join(folder, "test.txt")
            made_up(train, 12000, 1)
            made_up(test, 3000, 2)
        open(empty, "w").close()
        run(
            "fasttext",
            "supervised",
            "-input",
            train,
            "-output",
            model,
            "-epoch",
            args.epochs,
            "-loss",
            args.loss,
            "-lr",
            "0.5",
            "-thread",
            "2",
        )
        theirs, slow, loading = answered(["fasttext", "predict", model + ".bin"], test, empty)
        print(f"fasttext -loss {args.loss:<8} {slow:8.3f} s, P@1 {hits(theirs, test):.4f}   (loading {loading:.3f} s)")
        if args.loss == "hs":
            return 0  # a tree: it has no wide layer
        run(TOOL, "embed", model + ".bin", "--data", train, "-o", log, "-q")
        run(
            TOOL,
            "build",
            "--layer",
            model + ".bin",
            "--log",
            log,
            "--target",
            "0.995",
            "--max-time",
            args.max_time,
            "-o",
            index,
            "-q",
        )
        command = [TOOL, "predict", "--index", index, "--net", model + ".bin", "-k", "1", "--threads", "1"]
        ours, fast, loading = answered(command, test, empty)
        print(f"wideout                 {fast:8.3f} s, P@1 {hits(ours, test):.4f}   (loading {loading:.3f} s)")
        print(
            f"{slow / max(fast, 1e-3):.1f} times as fast, {100 * hits(ours, test) / hits(theirs, test):.2f}% of its P@1"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
