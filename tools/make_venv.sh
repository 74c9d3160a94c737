#!/usr/bin/env bash
# Make .venv hold what pyproject.toml asks for. Quick when it already does; repairs whatever state .venv is in.
# PYTHON=/path/to/python chooses the interpreter. With --native it builds the native module anew, or fails. With --stamp
# or --native-stamp it only prints that stamp.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.fencepost-stamp
native_stamp=$venv/.fencepost-native-stamp

say() { echo "==> $*" >&2; }
fail() { printf 'error: %s\n' "$@" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python python3.14; do
    if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then
      command -v "$name"
      return
    fi
  done
  return 1
}

wanted() { cat pyproject.toml lab/pyproject.toml tools/make_venv.sh | cksum; }
native_sources() { cat native/Cargo.* native/*.toml native/*.rs native/*.pyi native/src/*.rs | cksum; }

# Without the native module everything works, more slowly (docs/decisions/native-loops-optional.md). So a failure is an
# error only if the module is asked for, and in CI, which would leave out half of the tests.
must_build=${CI:-}
install_native() {
  local cargo output
  if [ -f "$native_stamp" ] && [ "$(cat "$native_stamp")" = "$(native_sources)" ] &&
    "$venv/bin/python" -c 'import fencepost_native' >/dev/null 2>&1; then
    return
  fi
  rm -f "$native_stamp"
  cargo=$(command -v cargo || command -v "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" || true)
  if [ -z "$cargo" ]; then
    [ -z "$must_build" ] || fail "the native module is needed, and there is no Rust toolchain (cargo) in PATH or ~/.cargo/bin."
    say "runs without the native module: no Rust toolchain (cargo is neither in PATH nor in ~/.cargo/bin)"
    return
  fi
  say "building the native module with $("$cargo" --version) (a minute the first time)"
  if output=$(PATH=$(dirname "$cargo"):$PATH pip_install --no-deps --force-reinstall ./native 2>&1); then
    native_sources >"$native_stamp"
    return
  fi
  [ -z "$must_build" ] || fail "the native module cannot be built:" "$output"
  say "runs without the native module, which cannot be built: $(printf '%s\n' "$output" | grep -m 1 -i error || true)" \
    "(make native shows everything)"
}

pip_install() {
  if command -v uv >/dev/null 2>&1; then
    VIRTUAL_ENV=$PWD/$venv uv pip install --quiet "${@/--force-reinstall/--reinstall}"
  else
    # Bytecode of what is imported is made when it is; that of all 9,000 files would be half of the processor time.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
  fi
}

case ${1:-} in
  --stamp) wanted && exit 0 ;;
  --native-stamp) native_sources && exit 0 ;;
  --native) must_build=1 && rm -f "$native_stamp" ;;
esac

make_with_python() {
  local python=$1 output
  say "making $venv with $("$python" --version 2>&1) ($python)"
  if output=$("$python" -m venv "$venv" 2>&1); then
    return
  fi
  rm -rf "$venv"
  case $output in
    *ensurepip*)
      if command -v uv >/dev/null 2>&1; then
        make_with_uv "$python"
        return
      fi
      fail "this Python cannot make virtual environments (its venv package is missing)." \
        "On Debian or Ubuntu: apt install $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" \
        "Or install uv, https://docs.astral.sh/uv/, and run make again." ;;
    *) fail "$python -m venv $venv failed:" "$output" ;;
  esac
}

make_with_uv() {
  say "making $venv with uv (Python $1)"
  uv venv --quiet --seed --python "$1" "$venv"
}

# Two `make` at once (two terminals, an editor) must not both write into .venv.
if command -v flock >/dev/null 2>&1; then
  exec 9>.venv.lock
  flock 9
fi

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ] && new_enough "$venv/bin/python" &&
  "$venv/bin/python" -c 'import fencepost, fencepost_lab' >/dev/null 2>&1; then
  install_native
  exit 0
fi

if [ -e "$venv" ] && ! new_enough "$venv/bin/python"; then
  say "$venv holds no working Python >= 3.11: making it anew"
  rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
  if python=$(find_python); then
    make_with_python "$python"
  elif command -v uv >/dev/null 2>&1; then
    make_with_uv 3.12
  else
    fail "Python >= 3.11 is needed and was not found." \
      "Debian 12 or Ubuntu 24.04: apt install python3 python3-venv; macOS: brew install python@3.13;" \
      "anywhere: install uv, https://docs.astral.sh/uv/, and run make again; or make PYTHON=/path/to/python."
  fi
fi

rm -f "$stamp" "$native_stamp"
say "installing fencepost with everything for demo, tests and benchmarks into $venv (about 1 GB the first time)"
if ! command -v uv >/dev/null 2>&1; then
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip --upgrade >/dev/null
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
fi
pip_install --editable '.[spark,metrics,msk,oauth,schemas]' --editable './lab[bench,demo]' --group dev
install_native
wanted >"$stamp"
say "$venv is ready"
