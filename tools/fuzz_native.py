"""Fuzz the parsers of the native module, guided by coverage: `python -m tools.fuzz_native [--seconds 60]`.

Builds native/fuzz with libFuzzer, which needs a Rust toolchain and a C++ compiler, and runs each target for that time.
The first inputs are valid requests and records. Inputs that reach new code are kept in native/fuzz/corpus, so that a
later run goes on from there. The exit status is 1 if an input was found that breaks a parser; its file is named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from fencepost.protocol import produce_wire
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest
from fencepost.protocol.records.batch import HEADER_BYTES
from fencepost.protocol.records.encoding import encode_batch

ROOT: Final = Path(__file__).parents[1] / "native" / "fuzz"
TARGETS: Final = ("produce", "records")
COVERAGE: Final = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks"
)


def seeds() -> dict[str, list[bytes]]:
    """Return the first inputs of each target."""
    batches = [
        bytes(encode_batch(keys=[key] * count, values=[b"v" * 9] * count, timestamps=1_700_000_000_000))
        for key in (None, b"key")
        for count in (1, 3)
    ]
    requests = []
    for version in range(produce_wire.VERSIONS[0], produce_wire.VERSIONS[1] + 1):
        named = None if version >= 13 else "topic"
        wanted = [ProducePartition(named, None, index, batch) for index, batch in enumerate(batches)]
        body = b"".join(produce_wire.encode_request(ProduceRequest("id", -1, 1500, wanted), version))
        requests.append(encode_request_frame(0, version, 7, "client", body)[4:])
    return {"produce": requests, "records": [b"\x01" + bytes(8) + batch[HEADER_BYTES:] for batch in batches]}


def build(cargo: str) -> Path:
    """Return the folder of the programs."""
    environment = {**os.environ, "RUSTFLAGS": COVERAGE}
    reported = subprocess.run(
        [str(Path(cargo).with_name("rustc")), "-vV"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    host = reported.partition("host: ")[2].split()[0]
    # With a named target the flags do not apply to build scripts, which have no fuzzer to report to.
    subprocess.run([cargo, "build", "--release", "--locked", "--target", host], cwd=ROOT, env=environment, check=True)
    return ROOT / "target" / host / "release"


def fuzz(program: Path, seconds: int) -> bool:
    """Run one target; print its figures, and return true if nothing broke it."""
    corpus = ROOT / "corpus" / program.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()[program.name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = (f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={corpus}-", "-max_len=4096")
    done = subprocess.run([program, corpus, *options], stderr=subprocess.PIPE, text=True, check=False)
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    if done.returncode != 0 or runs is None or not covered:
        print(done.stderr[-4000:], file=sys.stderr)
        return False
    print(f"{program.name}: {int(runs[1]):,} inputs, {covered[-1]} branches reached", flush=True)
    return True


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    seconds = parser.parse_args().seconds
    cargo = shutil.which("cargo") or shutil.which(str(Path.home() / ".cargo" / "bin" / "cargo"))
    if cargo is None or shutil.which("c++") is None:
        parser.error("needs a Rust toolchain (cargo) and a C++ compiler (c++)")
    programs = build(cargo)
    outcomes = [fuzz(programs / name, seconds) for name in TARGETS]  # each, also after one that failed
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
