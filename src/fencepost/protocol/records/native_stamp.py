"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "b15add46e8002fb6"
