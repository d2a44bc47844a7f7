"""People, their sessions, sign-in links, passwords and API tokens."""
