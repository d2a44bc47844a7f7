"""Every setting of server and worker, read once and passed inward; documented in docs/configuration.md."""

from __future__ import annotations

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LOOPBACK = ("127.0.0.1", "::1", "localhost")
LABEL = re.compile(r"[\w.-]{1,40}")  # of a worker, and what a run may ask for


class Settings(BaseSettings):
    """Read from the environment with the prefix ``AMPBOARD_``. No secret has a usable default."""

    model_config = SettingsConfigDict(env_prefix="AMPBOARD_", extra="ignore")

    data_dir: Path = Field(
        default=Path.home() / ".ampboard",
        description="Folder of the embedded database, the embedded broker, the local token and scratch files.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on; other than loopback needs accounts.")
    port: int = Field(default=8420, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Further names under which browsers may reach the server (JSON list); loopback is always allowed.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="SQLAlchemy URL, e.g. postgresql+psycopg://…; unset means a SQLite file in data_dir.",
    )
    broker_url: SecretStr | None = Field(
        default=None,
        description="Celery broker URL, e.g. redis://…; unset means an embedded one on a private socket.",
    )
    workloads: Annotated[list[Path], NoDecode] = Field(
        default_factory=list,
        description="Folders with workload files, separated by the path separator; the bundled ones are always listed.",
    )
    worker_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of this worker, unique among all; unset means the host's name.",
    )
    worker_host: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the machine of this worker; unset means its host name. A run on several hosts takes "
        "workers whose machines differ.",
    )
    advertise_address: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.:-]{1,200}$",
        description="Name or address under which other workers reach this one, where a run on several hosts meets; "
        "unset takes the address that leads to the database or the broker.",
    )
    worker_slots: int = Field(default=1, ge=1, le=64, description="Runs at once on a CPU host.")
    worker_threads: int | None = Field(
        default=None, ge=1, description="Torch threads of a run; unset means cores/slots."
    )
    warm_children: bool = Field(default=True, description="Fork runs from a process that has already imported torch.")
    lease_s: float = Field(default=15.0, gt=0, description="A run whose worker is silent for this long is lost.")
    heartbeat_s: float = Field(default=3.0, gt=0, description="How often a worker renews its leases.")
    sweep_s: float = Field(
        default=5.0, gt=0, description="How often lost runs are requeued and queued ones republished."
    )
    fair_share_half_life_s: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="Device time that someone used counts half after this long, when the queue is ordered.",
    )
    max_running_per_user: int | None = Field(
        default=None, ge=1, description="Runs of one person at work at once; unset is no limit."
    )
    max_running_per_project: int | None = Field(
        default=None,
        ge=1,
        description="Runs of one project at work at once, unless the project has a limit of its own.",
    )
    worker_labels: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Labels of this worker, separated by commas; a run may ask for a worker that carries some.",
    )
    min_free_memory_bytes: int = Field(
        default=256 * 1024 * 1024, ge=0, description="A device with less free memory than this is given no run."
    )
    allow_root: bool = Field(
        default=False, description="Let a worker that joins a store on another host run as root, and its runs with it."
    )
    artifacts: str | None = Field(
        default=None,
        description="Folder or fsspec URL (file:///mnt/share, s3://bucket/prefix) through which workers of several "
        "hosts share checkpoints; unset keeps each worker's in its own data_dir.",
    )
    max_artifact_bytes: int = Field(
        default=4 * 1024**3, ge=1, description="A checkpoint above this size is not shared."
    )
    fetch_workloads: bool = Field(
        default=False,
        description="Let this worker run workload files that it lacks, as another worker recorded them in the store.",
    )
    trusted_proxy: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Addresses, such as 10.0.0.5/32, of a proxy that signs people in, separated by commas; it must set "
        "AMPBOARD_TRUSTED_PROXY_HEADER on every request, and remove what browsers send under that name.",
    )
    trusted_proxy_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]{1,60}$",
        description="Header in which that proxy names the person, such as X-Forwarded-User; unset takes nobody's word.",
    )
    webhook_networks: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Private networks that webhooks may reach all the same, such as 10.1.0.0/16, separated by commas.",
    )
    max_time_s: float = Field(default=24 * 3600.0, gt=0, description="Default time limit of a run.")
    max_memory_bytes: int | None = Field(default=None, ge=1, description="Default memory limit of a run's process.")
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, description="Largest request body accepted.")
    max_runs_per_experiment: int = Field(default=500, ge=1, description="Largest number of runs of one submission.")
    retention_days: int | None = Field(
        default=None,
        ge=1,
        description="Days after which ended experiments are deleted, unless their project says otherwise or they are "
        "tagged keep; unset keeps them.",
    )
    undo_s: float = Field(
        default=600.0, ge=0, description="How long a deleted experiment or run can be restored before it is purged."
    )
    session_days: int = Field(default=14, ge=1, description="How long a browser stays signed in.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Level of the logs.")
    log_format: Literal["text", "json"] = Field(
        default="text", description="Form of the log lines on standard error; with json, one object a line."
    )

    @field_validator("workloads", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        if isinstance(value, str):
            return [part for part in value.split(os.pathsep) if part]
        return value

    @field_validator("worker_labels", "webhook_networks", "trusted_proxy", mode="before")
    @classmethod
    def _split_words(cls, value: object) -> object:
        if isinstance(value, str):
            return sorted({part.strip() for part in value.split(",") if part.strip()})
        return value

    @field_validator("webhook_networks", "trusted_proxy")
    @classmethod
    def _networks(cls, texts: list[str]) -> list[str]:
        for text in texts:
            ip_network(text, strict=False)  # a ValueError says what is wrong
        return texts

    @field_validator("trusted_proxy")
    @classmethod
    def _not_everybody(cls, texts: list[str]) -> list[str]:
        for text in texts:
            if ip_network(text, strict=False).prefixlen == 0:
                raise ValueError(f"{text} is every address: name the proxy's own, such as 10.0.0.5/32")
        return texts

    @model_validator(mode="after")
    def _proxy_and_header(self) -> Settings:
        if bool(self.trusted_proxy) != (self.trusted_proxy_header is not None):
            raise ValueError("AMPBOARD_TRUSTED_PROXY and AMPBOARD_TRUSTED_PROXY_HEADER go together: set both or none")
        return self

    @field_validator("worker_labels")
    @classmethod
    def _words(cls, labels: list[str]) -> list[str]:
        for label in labels:
            if not LABEL.fullmatch(label):
                raise ValueError(f"label {label!r} must be 1 to 40 letters, digits, dots, dashes or underscores")
        return labels

    @model_validator(mode="after")
    def _lease_outlives_heartbeat(self) -> Settings:
        if self.lease_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"lease_s={self.lease_s:g} must be at least twice heartbeat_s={self.heartbeat_s:g}: "
                "raise AMPBOARD_LEASE_S"
            )
        return self

    @property
    def embedded_database(self) -> bool:
        return self.database_url is None

    @property
    def embedded_broker(self) -> bool:
        return self.broker_url is None

    @property
    def sqlalchemy_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'ampboard.sqlite3'}"

    @property
    def broker_socket(self) -> Path:
        return self.data_dir / "broker.sock"

    @property
    def celery_broker_url(self) -> str:
        if self.broker_url is not None:
            return self.broker_url.get_secret_value()
        return f"redis+socket://{self.broker_socket}"
