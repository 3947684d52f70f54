"""State that is the same at all members: the device registry and retained messages. Sans-IO."""
