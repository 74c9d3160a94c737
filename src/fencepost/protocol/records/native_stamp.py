"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "96ef2797a3f38a9d"
