"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "a484b3ed812a9d74"
