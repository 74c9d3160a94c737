"""The `fencepost` command and its subcommands."""
