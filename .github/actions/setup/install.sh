#!/usr/bin/env bash
# Install reconciler into a folder of its own, with the versions of requirements.lock, and put it on the PATH of the
# steps that follow.
set -euo pipefail

home="$RUNNER_TEMP/reconciler"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
if [[ ! -x "$home/bin/reconciler" ]]; then
  source="${PACKAGE:-$root}"
  if [[ -n "${EXTRAS:-}" ]]; then
    name="${source%%[=<>~! ]*}"
    source="${name}[$EXTRAS]${source#"$name"}"
  fi
  # Constraints have neither hashes nor extras.
  constraints="$RUNNER_TEMP/reconciler-constraints.txt"
  sed -nE 's/^([A-Za-z0-9._-]+)(\[[^]]*\])?(==[^ ;\\]+)( ; [^\\]*)?.*$/\1\3\4/p' "$root/requirements.lock" >"$constraints"
  uv="$RUNNER_TEMP/reconciler-uv"
  export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
  # uv does not read the settings of pip: where pip has an index of its own, pip installs.
  if ! python3 -m pip config list | grep -q index-url &&
    python3 -m pip install --quiet --target "$uv" --constraint "$constraints" uv; then
    "$uv/bin/uv" venv --quiet --no-python-downloads --python "$(command -v python3)" "$home"
    "$uv/bin/uv" pip install --quiet --compile-bytecode --python "$home/bin/python" \
      --constraint "$constraints" --build-constraint "$constraints" "$source"
  else
    python3 -m venv "$home"
    "$home/bin/python" -m pip install --quiet --constraint "$constraints" "$source"
  fi
fi
echo "$home/bin" >>"$GITHUB_PATH"
version="$("$home/bin/reconciler" --version)"
echo "$version"
echo "version=${version##* }" >>"$GITHUB_OUTPUT"
