#!/usr/bin/env bash
# Install reconciler into a folder of its own, and put it on the PATH of the steps that follow.
set -euo pipefail

home="$RUNNER_TEMP/reconciler"
if [[ ! -x "$home/bin/reconciler" ]]; then
  source="${PACKAGE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)}"
  if [[ -n "${EXTRAS:-}" ]]; then
    name="${source%%[=<>~! ]*}"
    source="${name}[$EXTRAS]${source#"$name"}"
  fi
  python3 -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$source"
fi
echo "$home/bin" >>"$GITHUB_PATH"
"$home/bin/reconciler" --version
echo "version=$("$home/bin/reconciler" --version | awk '{print $NF}')" >>"$GITHUB_OUTPUT"
