"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "0b2ac464ea85c199"
