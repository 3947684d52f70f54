"""The rules by which members find, move and end sessions of clients. Sans-IO."""
