"""History → verdict. Nothing here looks at anything but the history."""
