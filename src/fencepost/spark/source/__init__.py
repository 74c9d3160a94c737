"""The source, and the lag that its progress reports."""
