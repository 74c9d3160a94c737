"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "24f1b31ddc900396"
