"""What a local start refuses, and what it leaves in the data folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from server.cli.errors import CommandError
from server.cli.local import grant_access, held, prepare_folder
from server.cli.ports import claim_port
from server.client import token_file
from server.db.upgrade import open_database
from server.settings import Settings


def test_a_taken_port_is_named_with_a_free_one() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port} on 127\.0\.0\.1 is taken.*--port \d+") as caught:
            claim_port("127.0.0.1", port)
    free = int(str(caught.value).split("--port ")[1].split(" ")[0])
    assert claim_port("127.0.0.1", free) == free


def test_port_zero_takes_a_free_one() -> None:
    assert claim_port("127.0.0.1", 0) > 0


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(CommandError, match=r"host '192\.0\.2\.7' is no address of this machine"):
        claim_port("192.0.2.7", 0)


def test_the_data_folder_is_private(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new" / "folder")
    prepare_folder(settings)
    assert settings.data_dir.stat().st_mode & 0o777 == 0o700


def test_a_file_in_place_of_the_data_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"AMPBOARD_DATA_DIR=.*file: the data folder must be"):
        prepare_folder(Settings(data_dir=tmp_path / "file"))


def test_two_starts_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with held(settings), pytest.raises(CommandError, match=f"process id {os.getpid()}"), held(settings):
        pass
    with held(settings):
        pass


def test_the_local_token_is_private_and_kept_while_it_works(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    database = open_database(settings)
    try:
        first = grant_access(settings, database)
        second = grant_access(settings, database)
        assert first.token == second.token
        assert first.sign_in != second.sign_in
        assert token_file(settings).stat().st_mode & 0o777 == 0o600
        token_file(settings).write_text("amp_forged")
        assert grant_access(settings, database).token not in {first.token, "amp_forged"}
    finally:
        database.dispose()
