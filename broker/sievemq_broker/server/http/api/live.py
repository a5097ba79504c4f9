"""What changes at run time: rules of destinations, limits of namespaces, users, limits of the broker; settings that
are read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from sievemq_broker.config import ConfigError, Loaded
from sievemq_broker.rules import pattern_of
from sievemq_broker.server import reloading
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.errors import ApiError, bad_request, not_found
from sievemq_broker.server.live_settings import VALUES, Layer, RefusedError, Value, difference
from sievemq_broker.session.rights import EVERYTHING, Verb
from sievemq_broker.users.account import User
from sievemq_broker.users.passwords import hash_password, is_hash

routes = Routes("Settings")

#: Characters of an order of patterns that the record of actions repeats.
_MOST_RECORDED = 1_000

AnyCall: TypeAlias = "Call[Any, Any]"
L = TypeVar("L", bound=answers.Live)


# -- rules and limits -------------------------------------------------------------------------------------------------


@routes.add("GET", "/rules", None, answers.Rules, query=requests.ListPatterns)
async def list_rules(call: Call[requests.ListPatterns, Any]) -> answers.Rules:
    """Rules of destinations by pattern, in order: the first that fits applies."""
    return _list(call, call.server.live.rules, call.query.sort)


@routes.add("GET", "/rules/{pattern}", None, answers.Rule)
async def get_rule(call: AnyCall) -> answers.Rule:
    """Rules of destinations of one pattern, with an ETag."""
    return _get(call, call.server.live.rules)


@routes.add("PUT", "/rules/{pattern}", None, answers.Rule, body=requests.PutRule, status=(201, 200))
async def put_rule(call: Call[Any, requests.PutRule]) -> answers.Rule:
    """Change the rules of a pattern, or add it.

    It applies at once, also to what exists, and deletes nothing: a queue that holds more than its new limit accepts no
    more until it holds less. A new pattern stands before the first one that covers it, else last. With If-Match it is
    changed only if it is still what the caller has read."""
    return await _change(call, call.server.live.rules)


@routes.add("DELETE", "/rules/{pattern}", None, answers.Rules)
async def delete_rule(call: AnyCall) -> answers.Rules:
    """Remove a pattern of rules. One of the settings is removed until it is reset, or until they change it."""
    return await _remove(call, call.server.live.rules)


@routes.add(
    "POST", "/rules/{pattern}/actions/reset", None, answers.Rules, body=requests.Nothing, body_optional=True
)  # fmt: skip
async def reset_rule(call: AnyCall) -> answers.Rules:
    """Take a change of rules at run time back: what the settings say applies again."""
    return await _take_back(call, call.server.live.rules)


@routes.add("POST", "/rules/actions/order", None, answers.Rules, body=requests.NewOrder)
async def order_rules(call: Call[Any, requests.NewOrder]) -> answers.Rules:
    """Put all patterns of rules in an order; without any, in that of the settings again."""
    return await _arrange(call, call.server.live.rules)


@routes.add("GET", "/limits", None, answers.Rules, query=requests.ListPatterns)
async def list_limits(call: Call[requests.ListPatterns, Any]) -> answers.Rules:
    """Limits of namespaces by pattern, in order: the first that fits applies."""
    return _list(call, call.server.live.limits, call.query.sort)


@routes.add("GET", "/limits/{pattern}", None, answers.Rule)
async def get_limit(call: AnyCall) -> answers.Rule:
    """Limits of namespaces of one pattern, with an ETag."""
    return _get(call, call.server.live.limits)


@routes.add("PUT", "/limits/{pattern}", None, answers.Rule, body=requests.PutRule, status=(201, 200))
async def put_limit(call: Call[Any, requests.PutRule]) -> answers.Rule:
    """Change the limits of a pattern, or add it; as rules."""
    return await _change(call, call.server.live.limits)


@routes.add("DELETE", "/limits/{pattern}", None, answers.Rules)
async def delete_limit(call: AnyCall) -> answers.Rules:
    """Remove a pattern of limits. One of the settings is removed until it is reset, or until they change it."""
    return await _remove(call, call.server.live.limits)


@routes.add(
    "POST", "/limits/{pattern}/actions/reset", None, answers.Rules, body=requests.Nothing, body_optional=True
)  # fmt: skip
async def reset_limit(call: AnyCall) -> answers.Rules:
    """Take a change of limits at run time back: what the settings say applies again."""
    return await _take_back(call, call.server.live.limits)


@routes.add("POST", "/limits/actions/order", None, answers.Rules, body=requests.NewOrder)
async def order_limits(call: Call[Any, requests.NewOrder]) -> answers.Rules:
    """Put all patterns of limits in an order; without any, in that of the settings again."""
    return await _arrange(call, call.server.live.limits)


def _list(call: AnyCall, layer: Layer[Any], sort: str = "order") -> answers.Rules:
    call.identity.require(Verb.VIEW, EVERYTHING, EVERYTHING)
    rules = [_rule(layer, name) for name in _names(layer)]
    if sort == "pattern":
        rules.sort(key=lambda rule: rule.pattern)
    elif sort != "order":
        rules.sort(key=lambda rule: rule.changed_at, reverse=sort == "-changed")
    return answers.Rules(rules=rules)


def _get(call: AnyCall, layer: Layer[Any]) -> answers.Rule:
    call.identity.require(Verb.VIEW, EVERYTHING, EVERYTHING)
    return _tagged(call, _rule(layer, _found(layer, _pattern(call, layer))))


async def _change(call: Call[Any, requests.PutRule], layer: Layer[Any]) -> answers.Rule:
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    name = _pattern(call, layer)
    call.check_etag(layer.etag(name))
    try:
        value = layer.parse({name: call.body.rules})[name]
    except ValueError as error:
        raise ApiError(422, "INVALID_RULE", str(error), {"pattern": name[:300]}) from None
    if name in layer.present:
        call.existed()
    await _put(call, layer, name, value)
    return _tagged(call, _rule(layer, name))


async def _remove(call: AnyCall, layer: Layer[Any]) -> answers.Rules:
    name = _known(call, layer, _pattern(call, layer))
    await _put(call, layer, name, None)
    return answers.Rules(rules=[_rule(layer, name)] if name in _names(layer) else [])


async def _take_back(call: AnyCall, layer: Layer[Any]) -> answers.Rules:
    name = _known(call, layer, _pattern(call, layer))
    await _reset(call, layer, name)
    return answers.Rules(rules=[_rule(layer, name)] if name in _names(layer) else [])


async def _arrange(call: Call[Any, requests.NewOrder], layer: Layer[Any]) -> answers.Rules:
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    patterns = call.body.patterns
    call.about["change"] = ", ".join(patterns)[:_MOST_RECORDED] or "the order of the settings"
    try:
        layer.arrange(patterns, call.identity.user, call.now)
    except RefusedError as error:
        raise ApiError(409, "ILLEGAL_STATE", str(error)) from None
    await use(call, [layer])
    return _list(call, layer)


def _pattern(call: AnyCall, layer: Layer[Any]) -> str:
    pattern = call.path["pattern"]
    if layer is not call.server.live.rules:
        return pattern
    try:
        return pattern_of(pattern)
    except ValueError as error:
        raise ApiError(422, "INVALID_RULE", f"the pattern {error}", {"pattern": pattern[:300]}) from None


def _found(layer: Layer[Any], name: str) -> str:
    if name not in _names(layer):
        raise not_found(f"there is no {layer.kind} {name!r:.300}", **{layer.kind: name[:300]})
    return name


def _known(call: AnyCall, layer: Layer[Any], name: str) -> str:
    """The name of an entry that the caller may change, and that is what the caller has read."""
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    call.check_etag(layer.etag(_found(layer, name)))
    return name


def _names(layer: Layer[Any]) -> list[str]:
    return [*layer.present, *(name for name in layer.changes if name not in layer.present)]


def _rule(layer: Layer[Any], name: str) -> answers.Rule:
    value, below = layer.present.get(name), layer.below.get(name)
    return answers.Rule(
        pattern=name,
        rules={} if value is None else layer.table(value),
        settings=None if below is None else layer.table(below),
        **_live(layer, name),
    )


def _live(layer: Layer[Any], name: str) -> dict[str, Any]:
    change = layer.changes.get(name)
    return {
        "origin": "settings" if change is None else "run time",
        "changed_at": 0 if change is None else change.at,
        "changed_by": None if change is None else change.by,
        "removed": name not in layer.present,
        "kept": layer.is_kept,
        "etag": layer.etag(name),
    }


def _tagged(call: AnyCall, answer: L) -> L:
    call.headers["ETag"] = answer.etag
    return answer


def _check(layer: Layer[Any], name: str) -> None:
    try:
        layer.check(name)
    except RefusedError as error:
        raise ApiError(409, "ILLEGAL_STATE", str(error), {layer.kind: name[:300]}) from None


async def _put(call: AnyCall, layer: Layer[Any], name: str, value: Any) -> None:
    call.check_caller()  # two who remove each other
    _check(layer, name)
    there = layer.present.get(name)
    if value is not None:
        call.about["change"] = "added" if there is None else difference(there, value) or "none"
    layer.put(name, value, call.identity.user, call.now)
    await use(call, [layer])


async def _reset(call: AnyCall, layer: Layer[Any], name: str) -> None:
    call.check_caller()
    layer.reset(name, call.identity.user)
    await use(call, [layer])


async def use(call: AnyCall, layers: Iterable[Layer[Any]]) -> None:
    """Have the broker use what has changed. Returns once everything that exists does."""
    server, kinds = call.server, {layer.kind for layer in layers}
    if "user" in kinds:
        call.scope["state"]["own_change"] = True  # answer this call, although it may change its own user
        server.user_store.renew()
    if "setting" in kinds:
        server.use_values()
    if kinds & {"rule", "limit"}:
        done = asyncio.get_running_loop().create_future()
        server.use_rules().then(lambda now: None if done.done() else done.set_result(None))
        await done


# -- users ------------------------------------------------------------------------------------------------------------


@routes.add("GET", "/users", None, answers.Users)
async def list_users(call: AnyCall) -> answers.Users:
    """Users and their rights, without passwords. Only for users who may do everything."""
    require_everything(call)
    layer = call.server.live.users
    names = sorted(_names(layer), key=lambda name: (name not in layer.present, name))
    return answers.Users(users=[_user(layer, name) for name in names], required=call.server.user_store.users.required)


@routes.add("GET", "/users/{name}", None, answers.User)
async def get_user(call: AnyCall) -> answers.User:
    """One user, with an ETag."""
    require_everything(call)
    layer = call.server.live.users
    return _tagged(call, _user(layer, _found(layer, call.path["name"])))


@routes.add("PUT", "/users/{name}", None, answers.User, body=requests.PutUser, status=(201, 200))
async def put_user(call: Call[Any, requests.PutUser]) -> answers.User:
    """Add a user, or change its password or rights.

    Connections of a user with another password are closed; those with other rights get them. A new user needs a
    password, and `rights` or `everything`. The first user of a broker needs `everything`, and ends all connections:
    from then on clients need a user and a password."""
    require_everything(call)
    layer, name = call.server.live.users, call.path["name"]
    call.check_etag(layer.etag(name))
    old = layer.present.get(name)
    _check(layer, name)
    secret = await _secret(call, old)
    call.check_etag(layer.etag(name))  # hashing takes a while
    if layer.present.get(name) != old:  # the rights that it would keep, or the user, may be gone
        raise ApiError(409, "ILLEGAL_STATE", f"user {name!r} was changed meanwhile; read it again", {"user": name})
    user = _with_rights(call, User(name, secret) if old is None else User(name, secret, old.rights), old)
    check_users(call, {**layer.present, name: user})
    if old is not None:
        call.existed()
    await _put(call, layer, name, user)
    return _tagged(call, _user(layer, name))


@routes.add("DELETE", "/users/{name}", None, answers.Users)
async def delete_user(call: AnyCall) -> answers.Users:
    """Remove a user; its connections are closed.

    One that the settings have is removed until it is reset, or until they change it."""
    require_everything(call)
    layer = call.server.live.users
    name = _known(call, layer, call.path["name"])
    check_users(call, {other: user for other, user in layer.present.items() if other != name})
    await _put(call, layer, name, None)
    return answers.Users(users=[_user(layer, name)] if name in _names(layer) else [], required=True)


@routes.add("POST", "/users/{name}/actions/reset", None, answers.Users, body=requests.Nothing, body_optional=True)
async def reset_user(call: AnyCall) -> answers.Users:
    """Take a change at run time back: what the settings say applies again."""
    require_everything(call)
    layer = call.server.live.users
    name = _known(call, layer, call.path["name"])
    below = {name: layer.below[name]} if name in layer.below else {}
    check_users(call, {**{other: user for other, user in layer.present.items() if other != name}, **below})
    await _reset(call, layer, name)
    return answers.Users(users=[_user(layer, name)] if name in _names(layer) else [], required=True)


def _user(layer: Layer[User], name: str) -> answers.User:
    user = layer.present.get(name)
    granted = () if user is None else user.rights.grants
    return answers.User(
        name=name,
        hashed=user is not None and is_hash(user.secret),
        everything=user is not None and user.rights.unlimited,
        rights=[
            answers.Right(may=sorted(grant.may), destination=grant.destination, namespace=grant.namespace)
            for grant in granted
        ],
        **_live(layer, name),
    )


async def _secret(call: Call[Any, requests.PutUser], old: User | None) -> str:
    given = call.body.password
    if given is None:
        if old is None:
            raise bad_request("a new user needs a password", field="password")
        return old.secret
    if is_hash(given):
        return given
    try:
        return await asyncio.to_thread(hash_password, given, scram=call.body.scram)
    except ValueError as error:
        raise ApiError(422, "INVALID_USER", str(error)) from None


def _with_rights(call: Call[Any, requests.PutUser], user: User, old: User | None) -> User:
    given = call.body.rights
    if call.body.everything and given is not None:
        raise bad_request("give `rights` or `everything`, not both", field="rights")
    if old is None and given is None and not call.body.everything:
        raise bad_request("a new user needs `rights` or `everything`", field="rights")
    table: dict[str, Any] = {"password": user.secret}
    if given is not None:
        table["rights"] = given
    try:
        made = call.server.live.users.parse({user.name: table})[user.name]
    except ValueError as error:
        raise ApiError(422, "INVALID_USER", f"users: {error}") from None
    return made if given is not None or call.body.everything else User(user.name, user.secret, user.rights)


def require_everything(call: AnyCall) -> None:
    """Raise unless the caller may do everything: who changes users can give themselves any right.

    Raises:
        ApiError: 403.
    """
    if not call.identity.rights.unlimited:
        raise ApiError(
            403,
            "SECURITY",
            f"user {call.identity.user!r} must not see or change users: only users who may do everything can",
            {"user": call.identity.user},
        )


def check_users(call: AnyCall, changed: Mapping[str, User]) -> None:
    """Raise if these must not be the users.

    Raises:
        ApiError: 409.
    """
    if reason := users_refused(call, changed):
        raise ApiError(409, "ILLEGAL_STATE", reason)


def users_refused(call: AnyCall, changed: Mapping[str, User]) -> str:
    """Why these must not be the users: nobody could change anything, or there are none yet and must be none. Empty if
    they may."""

    def is_there(among: Mapping[str, User]) -> bool:
        return any(user.rights.unlimited for user in among.values())

    server = call.server
    if server.user_store.users.required:
        if is_there(server.live.users.present) and not is_there(changed):
            return "no other user may do everything, so nobody could change it again: add one first"
        return ""
    if server.is_shared:
        return "a broker that follows knows the users of its settings alone: put the first ones there, for each broker"
    if server.settings.test_control and not server.settings.test_control_exposed:
        return "test_control is on, which is for brokers without users; restart the broker without it"
    if not is_there(changed):
        return "the first user must be one who may do everything: otherwise nobody could change anything"
    return ""


# -- limits of the broker ---------------------------------------------------------------------------------------------


@routes.add("GET", "/settings/{name}", None, answers.Setting)
async def get_setting(call: AnyCall) -> answers.Setting:
    """A setting of one value that changes at run time, with an ETag."""
    call.identity.require(Verb.VIEW, EVERYTHING, EVERYTHING)
    return _tagged(call, _setting(call.server.live.values, _setting_name(call)))


@routes.add("PUT", "/settings/{name}", None, answers.Setting, body=requests.PutSetting)
async def put_setting(call: Call[Any, requests.PutSetting]) -> answers.Setting:
    """Change `max_connections` or `max_memory_bytes`.

    It applies at once. With a lower limit than what is in use, open connections and accepted messages stay: new
    connections are refused, and senders wait. With If-Match it is changed only if it is still what the caller has
    read."""
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    layer, name = call.server.live.values, _setting_name(call)
    call.check_etag(layer.etag(name))
    try:
        value = layer.parse({name: {"value": call.body.value}})[name]
    except ValueError as error:
        raise ApiError(422, "INVALID_SETTING", str(error), {"setting": name}) from None
    await _put(call, layer, name, value)
    return _tagged(call, _setting(layer, name))


@routes.add(
    "POST", "/settings/{name}/actions/reset", None, answers.Setting, body=requests.Nothing, body_optional=True
)  # fmt: skip
async def reset_setting(call: AnyCall) -> answers.Setting:
    """Take a change at run time back: what the settings say applies again."""
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    layer, name = call.server.live.values, _setting_name(call)
    call.check_etag(layer.etag(name))
    await _reset(call, layer, name)
    return _tagged(call, _setting(layer, name))


def _setting_name(call: AnyCall) -> str:
    name = call.path["name"]
    if name not in VALUES:
        text = f"there is no setting {name!r:.300} that changes at run time; there are {', '.join(VALUES)}"
        raise not_found(text, setting=name[:300])
    return name


def _setting(layer: Layer[Value], name: str) -> answers.Setting:
    return answers.Setting(
        name=name, value=layer.present[name].shown, settings=layer.below[name].shown, **_live(layer, name)
    )


# -- settings that are read again -------------------------------------------------------------------------------------


@routes.add("GET", "/settings", None, answers.SettingDifferences)
async def get_settings(call: AnyCall) -> answers.SettingDifferences:
    """How the settings of the broker differ from those that it would start with now, and from changes at run time.

    Its sources are read as at the start: the command line and the environment as they were then, and the files as they
    are now."""
    return await _differences(call, apply=False)


@routes.add(
    "POST", "/settings/actions/reload", None, answers.SettingDifferences, body=requests.Nothing, body_optional=True
)  # fmt: skip
async def reload_settings(call: AnyCall) -> answers.SettingDifferences:
    """Read the settings again, as on SIGHUP, and apply what needs no restart; the answer has what differed before."""
    return await _differences(call, apply=True)


async def _differences(call: AnyCall, *, apply: bool) -> answers.SettingDifferences:
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    server, live = call.server, call.server.live
    error, loaded = await _loaded(live.reread)
    found: list[reloading.Difference] = []
    if apply:
        if loaded is None:
            raise ApiError(409, "ILLEGAL_STATE", f"the settings cannot be read again: {error}")
        call.check_caller()
        call.scope["state"]["own_change"] = True  # answer this call, although it may change its own user
        server.user_store.reload()
        found = reloading.apply(server, loaded)
        await use(call, [live.rules])
    elif loaded is not None:
        found = reloading.differences(server.settings, loaded)
    return answers.SettingDifferences(
        differences=[
            answers.SettingDifference(
                name=each.name, text=each.text, origin=each.origin, applies="reload" if each.applied else "restart"
            )
            for each in found
        ],
        changes=[
            answers.SettingChange(
                kind=layer.kind,
                name=name,
                text=_change_text(layer, name),
                changed_at=change.at,
                changed_by=change.by,
            )
            for layer in live.layers
            for name, change in layer.changes.items()
        ]
        + [
            answers.SettingChange(
                kind="order",
                name=layer.kind,
                text=", ".join(layer.order.value or ()),
                changed_at=layer.order.at,
                changed_by=layer.order.by,
            )
            for layer in live.layers
            if layer.order is not None
        ],
        values=[_setting(live.values, name) for name in VALUES],
        error=error,
        kept=live.rules.is_kept,
        reloaded=apply,
    )


async def _loaded(reread: Callable[[], Loaded] | None) -> tuple[str, Loaded | None]:
    if reread is None:
        return "a program has given them", None
    try:
        return "", await asyncio.to_thread(reread)
    except ConfigError as error:
        return str(error), None


def _change_text(layer: Layer[Any], name: str) -> str:
    value, below = layer.present.get(name), layer.below.get(name)
    if value is None:
        return "removed"
    if below is not None:
        return difference(below, value) or "the same"
    return "added" if layer.kind == "user" else ", ".join(
        ["added", *(f"{rule} {text}" for rule, text in layer.table(value).items())]
    )  # fmt: skip
