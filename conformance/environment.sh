# Sourced by the suites: an environment of a suite's own, with qkv and what the suite needs.
#
#   environment NAME PACKAGE...     sets $python
#
# It is kept in $QKV_CONFORMANCE (target/conformance if that is not set) and made once; qkv is built
# again if it changed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

environment() {
  local place="${QKV_CONFORMANCE:-$root/target/conformance}/$1"
  shift
  python="$place/bin/python"
  if ! [ -x "$python" ]; then
    python3 -m venv "$place"
  fi
  "$python" -m pip install --quiet --disable-pip-version-check "$@" "$root/bindings/python"
}
