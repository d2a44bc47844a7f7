"""Actions on many experiments or runs at once: cancel, retry, tag, archive, delete, and their undoing."""
