"""``python -m server.cli`` is the command ``ampboard``; the supervisor starts its children this way."""

from server.cli.main import main

main()
