"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "7f286dd6dfbe82f6"
