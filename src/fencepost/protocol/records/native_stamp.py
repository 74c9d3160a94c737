"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "3e25926c25e2cf08"
