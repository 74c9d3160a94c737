"""Stamp of the native module that belongs to these sources. Written by tools/native_stamp.py."""

STAMP = "2e5e8a634916c164"
