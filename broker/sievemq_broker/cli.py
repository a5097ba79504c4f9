"""The subcommands that the broker adds to ``sievemq``: ``broker`` and ``config``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sievemq_broker.config import ConfigError, Loaded, Settings, env_name, load
from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy

__all__ = ["broker", "config"]

# Exit codes of every sievemq command; docs and `sievemq --help` list them.
FAILED, USAGE = 1, 2

#: What the extra `broker` installs and a broker needs.
_PACKAGES = ("starlette", "uvicorn", "prometheus_client", "argon2", "msgspec")


def _option(*names: str, text: str, panel: str = "Options") -> typer.models.OptionInfo:
    variable = env_name(names[0].removeprefix("--").partition("/")[0].replace("-", "_"))
    info: typer.models.OptionInfo = typer.Option(*names, help=f"{text} [{variable}]", rich_help_panel=panel)
    return info


def broker(
    host: Annotated[str | None, _option("--host", text="Address of the wire port; 127.0.0.1.")] = None,
    port: Annotated[int | None, _option("--port", text="Wire port, 0 for a free one; 7672.")] = None,
    protocols: Annotated[
        str | None, _option("--protocols", text="Protocols of the wire port: sieve, amqp, stomp; all.")
    ] = None,
    amqp_port: Annotated[
        int | None, _option("--amqp-port", text="A further port, for AMQP alone; 0 for a free one.")
    ] = None,
    stomp_port: Annotated[
        int | None, _option("--stomp-port", text="A further port, for STOMP alone; 0 for a free one.")
    ] = None,
    http: Annotated[bool | None, _option("--http/--no-http", text="Serve health, metrics, API and console.")] = None,
    http_host: Annotated[str | None, _option("--http-host", text="Address of the HTTP port; that of --host.")] = None,
    http_port: Annotated[int | None, _option("--http-port", text="HTTP port, 0 for a free one; 7680.")] = None,
    data_dir: Annotated[
        str | None,
        _option("--data-dir", text="Directory to keep PERSISTENT messages in; without, in memory only."),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="TOML file with settings. [SIEVEMQ_CONFIG]", dir_okay=False)
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            help="name:password of a user; again for more. Other users of the machine can see command lines: "
            "prefer --users-file. [SIEVEMQ_USERS]",
        ),
    ] = None,
    users_file: Annotated[
        str | None, _option("--users-file", text="File with the users; `sievemq user` writes it.")
    ] = None,
    http_hosts: Annotated[
        str | None, _option("--http-hosts", text="Further names of the HTTP port, such as mq.example.com.")
    ] = None,
    http_origins: Annotated[
        str | None,
        _option(
            "--http-origins", text="Origins whose pages may connect by WebSocket, such as https://shop.example.com."
        ),
    ] = None,
    session_seconds: Annotated[
        float | None, _option("--session-seconds", text="A browser's session ends after so long without use; 1800.")
    ] = None,
    insecure: Annotated[
        bool | None, _option("--insecure", text="Without users, accept every client that reaches the port.")
    ] = None,
    tls_cert: Annotated[
        str | None, _option("--tls-cert", text="PEM certificate chain; the wire port speaks TLS.")
    ] = None,
    tls_key: Annotated[str | None, _option("--tls-key", text="PEM key of the certificate.")] = None,
    tls_client_ca: Annotated[
        str | None, _option("--tls-client-ca", text="PEM CA that client certificates must come from.")
    ] = None,
    tls_client_users: Annotated[
        bool | None, _option("--tls-client-users", text="A client certificate signs in the user of its common name.")
    ] = None,
    on_full_disk: Annotated[
        str | None, _option("--on-full-disk", text="PERSISTENT sends on a full disk: fail, or block; fail.")
    ] = None,
    log_level: Annotated[str | None, _option("--log-level", text="debug, info, warning or error; info.")] = None,
    json_logs: Annotated[
        bool | None, _option("--json-logs/--console-logs", text="Log JSON lines; without, unless on a terminal.")
    ] = None,
    dialect: Annotated[
        str | None, _option("--dialect", text="Selector dialect of consumers that name none; jakarta.")
    ] = None,
    auto_create: Annotated[
        bool | None, _option("--auto-create/--no-auto-create", text="Make destinations when they are first named.")
    ] = None,
    max_body_bytes: Annotated[
        str | None, _option("--max-body-bytes", text="Largest body accepted, such as 1MiB; 64MiB.")
    ] = None,
    max_memory_bytes: Annotated[
        str | None,
        _option("--max-memory-bytes", text="Memory of all messages at which producers wait; 60 % of what there is."),
    ] = None,
    heartbeat_seconds: Annotated[
        float | None, _option("--heartbeat-seconds", text="A client silent twice as long is gone; 15.")
    ] = None,
    max_connections: Annotated[int | None, _option("--max-connections", text="Connections at a time; 10000.")] = None,
    handshake_seconds: Annotated[
        float | None, _option("--handshake-seconds", text="Time for TLS and the first command; 10.")
    ] = None,
    frame_seconds: Annotated[
        float | None, _option("--frame-seconds", text="Time in which a frame must be complete; 120; 0: any.")
    ] = None,
    busy_poll: Annotated[
        int | None,
        _option("--busy-poll", text="Microseconds to poll before blocking, where more comes fast; 600; 0: never."),
    ] = None,
    drain_seconds: Annotated[
        float | None, _option("--drain-seconds", text="At the end, time that clients get to finish; 5.")
    ] = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Every option is also a setting of the environment (in brackets) and of the file: `sievemq config show`.
    Exit codes: 0 ended in order, 1 could not start, 2 the settings are wrong.
    """
    given: dict[str, object] = {
        "host": host, "port": port, "protocols": protocols, "amqp_port": amqp_port,
        "stomp_port": stomp_port,
        "http": http, "http_host": http_host, "http_port": http_port, "data_dir": data_dir,
        "users": ",".join(user) if user else None, "users_file": users_file, "http_hosts": http_hosts,
        "http_origins": http_origins,
        "session_seconds": session_seconds, "insecure": insecure, "tls_cert": tls_cert, "tls_key": tls_key,
        "tls_client_ca": tls_client_ca, "tls_client_users": tls_client_users,
        "on_full_disk": on_full_disk, "log_level": log_level, "json_logs": json_logs,
        "dialect": dialect, "auto_create": auto_create, "max_body_bytes": max_body_bytes,
        "max_memory_bytes": max_memory_bytes, "heartbeat_seconds": heartbeat_seconds,
        "max_connections": max_connections, "handshake_seconds": handshake_seconds,
        "frame_seconds": frame_seconds, "busy_poll": busy_poll, "drain_seconds": drain_seconds,
    }  # fmt: skip
    _check_extra()
    settings = _load(config_file, given).settings
    from sievemq_broker.server.process import run  # `sievemq config` needs no server

    raise typer.Exit(run(settings))


def _check_extra() -> None:
    """The broker's packages are in an extra, and most are imported only once it runs: a missing one is reported now."""
    if not all(map(find_spec, _PACKAGES)):
        typer.echo("sievemq: `broker` needs an extra: pip install 'sievemq[broker]'", err=True)
        raise typer.Exit(USAGE)


def _load(config_file: Path | None, given: dict[str, object] | None = None) -> Loaded:
    try:
        return load(given, os.environ, config_file)
    except ConfigError as error:
        typer.echo(f"sievemq: {error}", err=True)
        raise typer.Exit(USAGE) from None


config = typer.Typer(help="Look at a broker's settings without starting one.", no_args_is_help=True)

_ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings. [SIEVEMQ_CONFIG]")]


@config.command()
def show(
    config_file: _ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value comes from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the settings a broker would start with, in the form of its TOML file; secrets are masked."""
    loaded = _load(config_file)
    rows = [(name, _shown(loaded.settings, name), loaded.origins[name]) for name in loaded.origins]
    if as_json:
        typer.echo(json.dumps({n: {"value": v, "origin": o} if origin else v for n, v, o in rows}, indent=2))
        return
    for name, value, source in rows:
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
        typer.echo(f"{line:<48}  # {source}" if origin else line)


@config.command()
def check(config_file: _ConfigFile = None) -> None:
    """Check the settings a broker would start with. Exit codes: 0 fine, 2 wrong."""
    _load(config_file)
    typer.echo("The settings are fine.")


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(of)}" for key, of in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return json.dumps(value, ensure_ascii=False)  # numbers, booleans, strings and lists of them are the same in TOML


def _shown(settings: Settings, name: str) -> object:
    value = getattr(settings, name)
    if name == "users":
        return dict.fromkeys(value, "***")
    if name in ("destinations", "namespaces"):  # only what was set; the rest are defaults
        default = DestinationPolicy() if name == "destinations" else NamespacePolicy()
        return {
            pattern: {
                f.name: said
                for f in fields(policy)
                if f.init and (said := getattr(policy, f.name)) != getattr(default, f.name)
            }
            for pattern, policy in value.items()
        }
    return value
