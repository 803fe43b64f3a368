#!/bin/sh
# Puts the modules that the browser tests need, pinned by tests/browser/package.json, into FOLDER/browser: browser.sh FOLDER
set -eu
mkdir -p "$1/browser"
cp "$(dirname "$0")/../tests/browser/package.json" "$(dirname "$0")/../tests/browser/package-lock.json" "$1/browser"
cd "$1/browser"
npm ci --silent --no-audit --no-fund
