"""What the benchmarks leave in bench/results says what it is of."""

import json
import os
import sys
import unittest

import wideout
from data import ROOT, scratch

sys.path.insert(0, os.path.join(ROOT, "bench"))
from python_timing import in_turn, machine, write_json


class Results(unittest.TestCase):
    def test_of_what(self):
        path = scratch("result.json")
        write_json({**machine(0.5), "us": in_turn({"a": lambda: 1.0, "b": lambda: 3.0}, 3)}, path)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual((found["version"], found["us"]), (wideout.__version__, {"a": 1.0, "b": 3.0}))
        self.assertRegex(found["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(found["machine"]["cpu"], wideout.cpu()["model"])
        self.assertEqual((found["machine"]["cores"], found["machine"]["load"]), (os.cpu_count(), 0.5))
        self.assertTrue(found["commit"])


if __name__ == "__main__":
    unittest.main()
