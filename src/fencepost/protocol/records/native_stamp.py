"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "c2b9f0d48618c0a3"
