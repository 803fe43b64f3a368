"""python3 -m wideout --version"""

import sys

import wideout


def main(args: list[str]) -> int:
    if args == ["--version"]:
        print(f"wideout {wideout.__version__}, {wideout.cpu()['level']}, Python {sys.version.split()[0]}, {wideout._core.__file__}")
        return 0
    print("usage: python3 -m wideout --version    (the tool is 'wideout')", file=sys.stderr)
    return 0 if args in (["--help"], ["-h"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
