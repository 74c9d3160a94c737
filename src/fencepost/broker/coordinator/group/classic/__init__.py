"""Groups with the classic protocol (JoinGroup and SyncGroup)."""
