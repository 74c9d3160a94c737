"""The stamp of the native module: a hash of the sources of its crate. `--write` stores it in the Python package.

`native/build.rs` computes the same and gives it to the module. fencepost/protocol/records/engine.py compares the two,
and refuses a module that was built from other sources. `make native` and `make venv` build the module.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
STORED: Final = "src/fencepost/protocol/records/native_stamp.py"
TEXT: Final = '''"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "{stamp}"
'''


def stamp_of(crate: Path) -> str:
    """Return FNV-1a (64 bits) over each source's name, length and bytes, in the order of their names."""
    names = ["Cargo.lock", "Cargo.toml", "build.rs", *(f"src/{each.name}" for each in (crate / "src").iterdir())]
    value = 0xCBF29CE484222325
    for name in sorted(names):
        content = (crate / name).read_bytes()
        for byte in name.encode() + len(content).to_bytes(8, "little") + content:
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"store it in {STORED}")
    stamp = stamp_of(ROOT / "native")
    if parser.parse_args().write:
        (ROOT / STORED).write_text(TEXT.format(stamp=stamp))
    print(stamp)


if __name__ == "__main__":
    main()
