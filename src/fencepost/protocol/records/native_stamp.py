"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "638919a4c6e7f7bb"
