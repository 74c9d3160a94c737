"""fencepost.protocol.messages."""
