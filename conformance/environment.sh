# Sourced by the suites: an environment of a suite's own, with qkv and what the suite needs.
#
#   environment NAME PACKAGE...     sets $python
#   others NAME PACKAGE...          the same without the Python package; builds the command, sets $QKV
#   packages NAME PACKAGE...        neither of both
#
# It is kept in $QKV_CONFORMANCE (target/conformance if that is not set) and made once; qkv is built
# again if it changed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

packages() {
  local place="${QKV_CONFORMANCE:-$root/target/conformance}/$1"
  shift
  python="$place/bin/python"
  if ! [ -x "$python" ]; then
    python3 -m venv "$place"
  fi
  "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

environment() {
  packages "$@" "$root/bindings/python"
}

others() {
  packages "$@"
  cargo build --quiet --release --locked -p qkv-cli --manifest-path "$root/Cargo.toml"
  export QKV="${CARGO_TARGET_DIR:-$root/target}/release/qkv"
}
