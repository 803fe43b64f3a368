"""Runs the Python tests and speaks TAP: run.py [NAME...], of test_*.py beside it, and the examples in the docstrings.

The package is taken from PYTHONPATH: build/python, or an installed one.
"""

import doctest
import importlib
import os
import pkgutil
import sys
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


class Tap(unittest.TestResult):
    """One line a test; what failed is shown below it."""

    def __init__(self):
        super().__init__()
        self.count, self.bad = 0, 0

    def line(self, test, fine, note=""):
        self.count += 1
        self.bad += not fine
        name = test.id().replace("#", "")
        print(f"{'ok' if fine else 'not ok'} {self.count} - {name}{note}", flush=True)

    def addSuccess(self, test):
        self.line(test, True)

    def addSkip(self, test, reason):
        self.line(test, True, f" # SKIP {reason}")

    def fail(self, test, error):
        self.line(test, False)
        text = "".join(traceback.format_exception(*error)) if isinstance(error, tuple) else str(error)
        print("".join(f"    {line}\n" for line in text.splitlines()), flush=True)

    addFailure = addError = fail

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.fail(subtest, error)


def docstrings(loader):
    """The examples of every module of the package that can be imported here."""
    import wideout

    suite = doctest.DocTestSuite(wideout, optionflags=doctest.NORMALIZE_WHITESPACE)
    for module in pkgutil.iter_modules(wideout.__path__, "wideout."):
        if module.name in ("wideout.__main__", "wideout._core"):
            continue
        try:
            found = importlib.import_module(module.name)
        except ImportError as error:  # an optional one, of torch or scikit-learn
            print(f"# examples of {module.name} are left out: {error}")
            continue
        suite.addTests(doctest.DocTestSuite(found, optionflags=doctest.NORMALIZE_WHITESPACE))
    return suite


def main(names):
    loader = unittest.TestLoader()
    every = sorted(name[:-3] for name in os.listdir(HERE) if name.startswith("test_") and name.endswith(".py"))
    suite = unittest.TestSuite()
    for name in names or every:
        suite.addTests(loader.loadTestsFromName(name))
    if not names:
        suite.addTests(docstrings(loader))
    result = Tap()
    suite.run(result)
    print(f"1..{result.count}")
    return 1 if result.bad or not result.count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
