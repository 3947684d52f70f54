"""The gateway as a process: configuration, store, broker and links put together; `onceway gateway …`."""
