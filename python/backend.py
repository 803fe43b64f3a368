"""Packs the package: what pip calls (PEP 517), and what the Makefile asks.

    backend.py ask                  the folder of Python.h, the suffix of extensions, 'numpy' or '-', and flags that it
                                    needs; nothing where there is no Python.h
    backend.py where PREFIX         the folder of packages that belongs to a PREFIX
    backend.py install BUILT TO     what 'make python' left in BUILT, into that folder, with its metadata
    backend.py uninstall FROM

Nothing is fetched: the extension is built by make, and holds the library itself. It needs libjansson when it runs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def _version() -> str:
    with open(os.path.join(HERE, "wideout", "__init__.py"), encoding="utf-8") as file:
        found = re.search(r'^__version__ = "([^"]+)"', file.read(), re.MULTILINE)
    assert found
    return found.group(1)


def _tag() -> str:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"{python}-{python}{'d' if hasattr(sys, 'gettotalrefcount') else ''}-{platform}"


def _metadata() -> dict[str, str]:
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: wideout\nVersion: {_version()}\n"
        "Summary: Cheap inference for wide output layers on CPUs\nRequires-Python: >=3.10\nRequires-Dist: numpy\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: wideout\nRoot-Is-Purelib: false\nTag: {_tag()}\n",
    }


def _suffix() -> str:
    return sysconfig.get_config_var("EXT_SUFFIX")


def _built_files(built: str) -> list[str]:
    """Of a built package, relative to it: the sources, and the extension of this Python."""
    found = []
    for folder, folders, names in os.walk(os.path.join(built, "wideout")):
        folders[:] = [f for f in folders if f != "__pycache__"]
        for name in names:
            if name.endswith((".py", ".pyi", "py.typed")) or name == "_core" + _suffix():
                found.append(os.path.relpath(os.path.join(folder, name), built))
    return sorted(found)


# ---- What pip calls --------------------------------------------------------------------------------------------------


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = f"wideout-{_version()}.dist-info"
    os.makedirs(os.path.join(metadata_directory, name), exist_ok=True)
    for file, text in _metadata().items():
        with open(os.path.join(metadata_directory, name, file), "w", encoding="utf-8") as out:
            out.write(text)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build = os.environ.get("WIDEOUT_BUILD", "build")
    if not os.path.exists(os.path.join(ROOT, "Makefile")):
        raise SystemExit("wideout: the package is built inside the project's tree: pip install ./python")
    jobs = f"-j{os.cpu_count() or 1}"
    subprocess.run(["make", "-C", ROOT, jobs, "DEPS=0", f"BUILD={build}", f"PYTHON={sys.executable}", "python"], check=True)
    info = f"wideout-{_version()}.dist-info"
    built = os.path.join(ROOT, build, "python")
    contents = {}
    for path in _built_files(built):
        with open(os.path.join(built, path), "rb") as file:
            contents[path] = file.read()
    for name, text in _metadata().items():
        contents[f"{info}/{name}"] = text.encode()
    record = ""
    for path, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = f"wideout-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return wheel


class UnsupportedOperation(Exception):
    """PEP 517's way to say no."""


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("wideout has no source distribution of its package alone: it is built in the project's tree")


# ---- What the Makefile asks ------------------------------------------------------------------------------------------


def ask() -> None:
    include = sysconfig.get_path("include")
    if os.path.exists(os.path.join(include, "Python.h")):
        numpy = "numpy" if importlib.util.find_spec("numpy") else "-"
        print(include, _suffix(), numpy, "-DPy_DEBUG" if hasattr(sys, "gettotalrefcount") else "")


def where(prefix: str) -> str:
    """Python's own folder for /usr/local, Debian's for /usr, and the usual one below any other prefix."""
    schemes = sysconfig.get_scheme_names()
    if prefix == "/usr/local" and "posix_local" in schemes:
        return sysconfig.get_path("platlib", "posix_local", {"base": "/usr", "platbase": "/usr"})
    if prefix == "/usr" and "deb_system" in schemes:
        return sysconfig.get_path("platlib", "deb_system", {"base": prefix, "platbase": prefix})
    return sysconfig.get_path("platlib", "posix_prefix", {"base": prefix, "platbase": prefix})


def uninstall(folder: str) -> None:
    shutil.rmtree(os.path.join(folder, "wideout"), ignore_errors=True)
    shutil.rmtree(os.path.join(folder, f"wideout-{_version()}.dist-info"), ignore_errors=True)


def install(built: str, to: str) -> None:
    uninstall(to)
    paths = _built_files(built)
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(to, path)), exist_ok=True)
        shutil.copyfile(os.path.join(built, path), os.path.join(to, path))
        os.chmod(os.path.join(to, path), 0o755 if path.endswith(".so") else 0o644)
    info = prepare_metadata_for_build_wheel(to)
    with open(os.path.join(to, info, "RECORD"), "w", encoding="utf-8") as out:
        out.writelines(f"{path},,\n" for path in [*paths, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"])
    print(f"installed wideout {_version()} in {to}")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    answer = {"ask": ask, "where": where, "install": install, "uninstall": uninstall}[command](*arguments)
    if answer is not None:
        print(answer)
