"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "9a8410fce92b623b"
