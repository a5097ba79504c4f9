"""The settings that a broker would start with now, beside those that it has: what a reload applies, and what needs a
restart."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Final

from sievemq_broker import logs
from sievemq_broker.config import ConfigError, Loaded, Settings, shown
from sievemq_broker.server.live_settings import table_differences
from sievemq_broker.server.server import Phase, Server

#: Settings that a reload applies.
APPLIED: Final = (
    "attention", "destinations", "namespaces", "users", "auto_create", "log_level", "max_connections",
    "max_memory_bytes",
)  # fmt: skip
#: Settings that are tables: they are compared entry by entry.
_TABLES: Final = ("destinations", "namespaces", "users")

log = logs.get("server")


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting of a running broker that its sources say otherwise by now.

    Attributes:
        name: of the setting.
        text: what differs, without secrets.
        origin: where the new value stands.
        applied: a reload applies it; otherwise a restart does.
    """

    name: str
    text: str
    origin: str
    applied: bool


def reload_on_signal(server: Server) -> None:
    """Read the users file and all settings again. What is wrong is logged, and nothing is changed then."""
    if server.phase is Phase.STARTING:  # a thread fills the broker
        server.when_serving(partial(reload_on_signal, server))
        return
    server.user_store.reload()
    if server.live.reread is None:
        return
    try:
        found = apply(server, server.live.reread())
    except ConfigError as error:
        log.warning("settings.not_read", reason=str(error), note="the settings are unchanged")
        return
    applied = [each.name for each in found if each.applied]
    server.audit.record("reload_settings", via="signal", applied=", ".join(applied) or None)


def apply(server: Server, loaded: Loaded) -> list[Difference]:
    """Use the settings that need no restart. Returns what differed before."""
    found = differences(server.settings, loaded)
    applied = [each.name for each in found if each.applied]
    if applied:
        server.use_settings(replace(server.settings, **{name: getattr(loaded.settings, name) for name in applied}))
        server.happenings.note("setting.changed", kind="setting", name=", ".join(applied))
    log.info(
        "settings.read", applied=applied, needs_restart=[each.name for each in found if not each.applied]
    )  # fmt: skip
    return found


def differences(running: Settings, loaded: Loaded) -> list[Difference]:
    """What the sources of the settings say otherwise than the broker has it."""
    found = []
    for name in [field.name for field in fields(Settings)]:
        old, new = getattr(running, name), getattr(loaded.settings, name)
        if name == "definitions":  # their rules, limits and users are settings of their own
            old, new = (None if each is None else each.namespaces for each in (old, new))
        if old == new and (name not in _TABLES or list(old) == list(new)):
            continue
        if name in _TABLES:
            text = "; ".join(table_differences(old, new)) or "their order"
        elif name == "definitions":
            text = "what is to exist; `sievemq definitions apply` changes it at once"
        else:
            text = f"{_plain(shown(running, name))} becomes {_plain(shown(loaded.settings, name))}"
        # The last user less lets everybody in; and a users file is watched or not.
        same = running.users_file == loaded.settings.users_file and running.secured <= loaded.settings.secured
        applied = name in APPLIED and (name != "users" or same)
        found.append(Difference(name, text, loaded.origins[name], applied))
    return found


def _plain(value: object) -> str:
    return "none" if value is None else str(value)
