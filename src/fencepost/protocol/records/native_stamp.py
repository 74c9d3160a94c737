"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "ecf389b733bdbd0d"
