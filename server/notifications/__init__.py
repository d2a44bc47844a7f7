"""What people are told in the browser: which events reach whom, the list, and what lies unread."""
