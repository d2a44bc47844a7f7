"""The command line: one module per group of commands, joined in `server.cli.main`."""
