"""Narrow windows, dark colours, keyboards, addresses that can be sent to somebody, and a broker that goes away."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api.hub import MAX_LISTENERS

from .chromium import Chromium, Page
from .opening import SHOWN, open_view
from .test_files import FOLDER

pytestmark = pytest.mark.slow

ORDERS = "#/default/destination/queue%3Aorders"
VIEWS = [
    "#/default/overview",
    "#/default/queues",
    "#/default/topics",
    "#/default/subscriptions",
    "#/default/dead-letters",
    "#/default/scheduled",
    "#/default/connections",
    "#/default/broker",
    "#/default/client/desk-4",
    "#/default/record",
    "#/default/history",
    "#/default/taps",
    "#/default/rules",
    ORDERS,
    f"{ORDERS}/messages?selector=region+%3D+%27EU%27",
    f"{ORDERS}/send",
    "#/default/workbench?selector=region+%3D+%27EU%27+AND+amount+%3E+1000&destination=queue%3Aorders",
]


@pytest.fixture(scope="module")
def details(shop_broker: EmbeddedBroker) -> list[str]:
    """The views of single things: a topic, a dead-letter queue, messages with bodies of each kind."""
    found = ["#/default/destination/topic%3Aprices", "#/default/destination/queue%3ADLQ.payments"]
    with ConnectionFactory(shop_broker.url).create_context() as context:
        for name in ("inventory", "DLQ.payments"):
            for message in context.create_browser(context.create_queue(name)):
                where = f"#/default/destination/{quote(f'queue:{name}', safe='')}/messages"
                found.append(f"{where}/{quote(message.get_jms_message_id() or '', safe='')}")
    return found


@pytest.fixture(scope="module")
def phone(chromium: Chromium) -> Iterator[Page]:
    with chromium.page(width=375, height=700) as page:
        yield page


def test_a_phone_scrolls_up_and_down_only(phone: Page, shop_broker: EmbeddedBroker) -> None:
    widest = """Array.from(document.querySelectorAll('main *')).filter((item) => item.checkVisibility() &&
        !item.closest('svg, .table, pre, .tabs') && item.getBoundingClientRect().right > innerWidth + 1)
        .map((item) => item.outerHTML.slice(0, 120))"""
    for view in VIEWS:
        open_view(phone, shop_broker, view)
        assert phone.value(widest) == [], view
        assert phone.value("document.documentElement.scrollWidth") <= 375, view


def test_on_a_phone_rows_are_cards_and_the_menu_opens(phone: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(phone, shop_broker, "#/default/queues")
    phone.until("document.querySelector('tbody tr') !== null")
    assert phone.value("getComputedStyle(document.querySelector('tbody tr')).display") == "grid"
    label = "getComputedStyle(document.querySelector('tbody td.number'), '::before').content"
    assert phone.value(label) == '"Ready"'
    assert phone.value("document.querySelector('.places').checkVisibility()") is False
    phone.click("button.menu")
    assert phone.value("document.querySelector('button.menu').getAttribute('aria-expanded')") == "true"
    phone.click(".places a", "Topics")
    phone.shows("1 topic")
    assert phone.value("document.querySelector('.places').checkVisibility()") is False


CONTRAST = """(() => {
    const light = (rgb) => rgb.map((c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    const parts = (text) => text.match(/[\\d.]+/g).map(Number);
    const ground = (item) => { for (; item; item = item.parentElement) {
        const [r, g, b, a = 1] = parts(getComputedStyle(item).backgroundColor); if (a === 1) return [r, g, b]; }
        return [255, 255, 255]; };
    const poor = [];
    for (const item of document.querySelectorAll('body *')) {
        if (!item.checkVisibility() || item.closest('svg, [disabled], .hidden, .skip, noscript, option')) continue;
        if (!Array.from(item.childNodes).some((node) => node.nodeType === 3 && node.data.trim())) continue;
        const [one, two] = [light(parts(getComputedStyle(item).color).slice(0, 3)), light(ground(item))];
        const ratio = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
        if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${item.className} ${item.textContent.slice(0, 30)}`);
    }
    return [...new Set(poor)];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read_in_light_and_dark(
    chromium: Chromium, shop_broker: EmbeddedBroker, details: list[str], dark: bool
) -> None:
    """WCAG 2.2 AA: 4.5 to 1."""
    with chromium.page(dark=dark) as page:
        for view in VIEWS + details:
            open_view(page, shop_broker, view)
            assert page.value(CONTRAST) == [], view
        ground = page.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(15, 20, 25)") is dark


def test_nothing_moves_with_reduced_motion(chromium: Chromium, shop_broker: EmbeddedBroker) -> None:
    moving = "getComputedStyle(document.querySelector('a.button')).transitionDuration"
    for still in (True, False):
        with chromium.page(still=still) as page:
            open_view(page, shop_broker, "#/default/overview")
            assert (page.value(moving) in ("0s", "0s, 0s")) is still


def test_a_walk_by_keyboard(page: Page, shop_broker: EmbeddedBroker) -> None:
    page.leave()  # coming from another view, the focus is in the content
    open_view(page, shop_broker, "#/default/overview")
    focus = "document.activeElement"
    page.value("document.body.focus()")
    page.press("Tab")
    assert page.value(f"{focus}.innerText") == "Skip to content"
    assert page.value(f"{focus}.getBoundingClientRect().top") >= 0  # it can be seen while it has the focus
    page.press("Enter")
    assert page.value(f"{focus}.id") == "main"
    assert page.value("location.hash") == "#/default/overview"
    page.press("g")
    page.press("q")
    page.until("location.hash === '#/default/queues'")
    page.shows("10 queues")
    assert page.value(f"{focus}.id") == "main"
    page.press("/")
    assert page.value(f"{focus}.type") == "search"
    page.press("Tab")
    outline = page.value(f"getComputedStyle({focus}).outlineStyle")
    assert outline == "solid"
    page.value("document.querySelector('th button').focus()")
    page.press("?", shift=True)
    page.until("document.querySelector('dialog.help')?.open")
    page.shows("Selector workbench", "dialog.help")
    page.press("Escape")
    page.until("document.querySelector('dialog') === null")
    assert page.value(f"{focus}.innerText") == "Queue"  # the focus is back where it was
    page.value("document.querySelector('td a').focus()")
    page.press("Enter")
    page.until("location.hash.includes('/destination/')")


def test_charts_are_read_with_arrow_keys(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, ORDERS)
    page.until("document.querySelectorAll('.chart .line').length > 0")
    page.value("document.querySelector('.chart').focus()")
    page.press("ArrowLeft")
    page.until("/\\d\\d:\\d\\d:\\d\\d/.test(document.querySelector('.moment').innerText)")


def test_the_focus_stays_while_figures_change(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/queues")
    page.until("document.querySelector('td a') !== null")
    page.value("window.kept = document.querySelector('tbody tr:nth-child(3) td a'), kept.focus()")
    page.value(
        """new Promise((resolve) => { const source = new EventSource('/api/v1/events'); let ticks = 0;
        source.addEventListener('tick', () => { ticks += 1; if (ticks === 3) { source.close(); resolve(); } }); })"""
    )
    assert page.value("document.activeElement === kept && kept.isConnected") is True


def test_the_layout_does_not_shift(chromium: Chromium, shop_broker: EmbeddedBroker) -> None:
    """The browser's own measure; 0.1 counts as good."""
    watch = """window.shift = 0; new PerformanceObserver((list) => { for (const entry of list.getEntries())
        if (!entry.hadRecentInput) shift += entry.value; }).observe({ type: "layout-shift", buffered: true });"""
    ticks = """new Promise((resolve) => { const source = new EventSource('/api/v1/events'); let ticks = 0;
        source.addEventListener('tick', () => { ticks += 1; if (ticks === 2) { source.close(); resolve(); } }); })"""
    with chromium.page() as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=watch)
        for view in ("#/default/overview", ORDERS, f"{ORDERS}/messages"):
            page.leave()
            open_view(page, shop_broker, view)
            page.value(ticks)
            assert page.value("shift") < 0.02, view


def test_everything_that_can_be_used_has_a_name(page: Page, shop_broker: EmbeddedBroker) -> None:
    for view in VIEWS:
        open_view(page, shop_broker, view)
        tree = page.send("Accessibility.getFullAXTree")["nodes"]
        wanted = {
            "button",
            "link",
            "textbox",
            "searchbox",
            "combobox",
            "checkbox",
            "table",
            "img",
            "navigation",
            "dialog",
        }
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node["ignored"] and node["role"]["value"] in wanted and not node["name"]["value"].strip()
        ]
        assert nameless == [], view


def test_an_address_restores_its_view(chromium: Chromium, shop_broker: EmbeddedBroker) -> None:
    shown = """document.title + document.querySelector('h1').innerText + Array.from(document.querySelectorAll(
        'main input:not([type=checkbox]), main select, main textarea'), (field) => field.value).join()"""
    with chromium.page() as going:
        for view in VIEWS:
            open_view(going, shop_broker, view)
            before = going.value(shown)
            going.value("window.before = true")
            going.send("Page.reload")
            going.until(f"window.before === undefined && {SHOWN}")
            assert going.value(shown) == before
            assert "SieveMQ" in before


def test_back_and_forward(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/queues?like=ship")
    page.shows("2 queues")
    page.click("td a", "shipments.eu")
    page.shows("queue:shipments.eu", "h1")
    page.click(".tabs a", "Messages")
    page.shows("1 message on this page")
    page.value("history.back()")
    page.shows("Consumers")
    page.value("history.back()")
    page.shows("2 queues")
    assert page.value("document.querySelector('input[type=search]').value") == "ship"
    page.value("history.forward()")
    page.shows("queue:shipments.eu", "h1")


def test_the_trial_message_is_in_the_address(chromium: Chromium, shop_broker: EmbeddedBroker) -> None:
    with chromium.page() as first, chromium.page() as second:
        open_view(first, shop_broker, "#/default/workbench")
        first.fill("textarea.selector", "size > 2")
        first.fill(".rows .name", "size")
        first.choose(".rows .kind", "int")
        first.fill(".rows .what", "3")
        first.shows("size is 3 (int)", "section > .explanation")
        second.open(first.value("location.href"))
        second.shows("size is 3 (int)", "section > .explanation")


def test_the_console_survives_a_broker_restart(page: Page, port: int) -> None:
    with EmbeddedBroker(http=True, http_port=port) as broker:
        with ConnectionFactory(broker.url).create_context() as client:
            client.create_producer().send(client.create_queue("before"), "x")
        open_view(page, broker, "#/default/queues")
        page.shows("before")
        page.until("document.body.classList.contains('live')")
    page.shows("The broker does not answer.", ".banner")
    assert page.value("document.querySelector('.banner').getAttribute('role')") == "alert"
    assert "before" in page.text()  # the last that was read stays
    page.value("window.stays = true")
    with EmbeddedBroker(http=True, http_port=port) as broker:
        broker.call(lambda domain: domain.namespace("default").declare("queue:after"))
        page.shows("after")
        page.until("document.querySelector('.banner').hidden")
        assert page.value("window.stays") is True
        page.value("location.hash = '#/default/overview'")
        page.shows("The broker was restarted")
    page.problems[:] = [problem for problem in page.problems if "ERR_" not in problem]  # the browser's own words


def test_events_of_a_hidden_page_are_shown_when_it_is_visible_again(page: Page, broker: EmbeddedBroker) -> None:
    def look(hidden: bool) -> None:
        page.value(
            f"Object.defineProperty(document, 'hidden', {{ value: {str(hidden).lower()}, configurable: true }}),"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    open_view(page, broker, "#/default/overview")
    page.until("document.body.classList.contains('live')")
    look(hidden=True)
    broker.call(lambda domain: domain.namespace("default").declare("queue:meanwhile"))
    hears_of_a_look(broker)
    look(hidden=False)
    page.shows("queue:meanwhile was created")


def hears_of_a_look(broker: EmbeddedBroker) -> None:
    """Returns when the broker has looked at what happened before."""
    parts = urlsplit(broker.http_url)
    other = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        other.request("GET", "/api/v1/events")
        assert any(line == b"event: tick\n" for line in other.getresponse())
    finally:
        other.close()


def test_without_events_the_console_polls(page: Page, broker: EmbeddedBroker) -> None:
    parts = urlsplit(broker.http_url)
    listeners = [http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60) for _ in range(MAX_LISTENERS)]
    try:
        for listener in listeners:
            listener.request("GET", "/api/v1/events")
            assert listener.getresponse().status == 200
        open_view(page, broker, "#/default/queues")
        page.shows("Live updates are off.", ".banner")
        broker.call(lambda domain: domain.namespace("default").declare("queue:late"))
        page.shows("late")
    finally:
        for listener in listeners:
            listener.close()
    page.until("document.querySelector('.banner').hidden")


#: An EventSource that carries what a test gives it, and the delays of the timers that are set.
STREAM = """window.delays = []; const set = setTimeout;
    window.setTimeout = (act, delay, ...more) => { delays.push(delay); return set(act, delay, ...more); };
    window.EventSource = class { heard = {};
        constructor() { window.stream = this; }
        addEventListener(kind, act) { this.heard[kind] = act; }
        give(kind, about) { this.heard[kind]({ lastEventId: "", data: JSON.stringify(about) }); }
        close() {} };"""


def test_silence_is_judged_by_the_streams_own_heartbeat(chromium: Chromium, broker: EmbeddedBroker) -> None:
    tick = {"time": 1, "depth": 0}
    with chromium.page() as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=STREAM)
        open_view(page, broker, "#/default/queues")
        page.until("window.stream !== undefined")
        page.value("stream.give('heartbeat', { seconds: 700 })")
        page.value(f"stream.give('tick', {tick})")
        page.until("document.body.classList.contains('live')")
        page.value("delays.length = 0, stream.give('heartbeat', { seconds: 700 })")
        assert page.value("delays") == [2_100_000]  # a heartbeat alone keeps the stream
        page.value("stream.give('heartbeat', { seconds: 0.001 })")
        page.until("document.body.classList.contains('lost')")


def test_after_an_outage_the_chart_has_a_gap_and_the_notice_is_gone(chromium: Chromium, broker: EmbeddedBroker) -> None:
    with chromium.page() as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=STREAM)
        open_view(page, broker, "#/default/overview")
        page.until("window.stream !== undefined")
        page.value("window.now = Date.now(), window.first = stream, stream.give('heartbeat', { seconds: 700 })")
        tick = "stream.give('tick', {{ time: now + {}, depth: 5, in_flight: 1, in_rate: 1, out_rate: 1 }})"
        for moment in (0, 1_000, 2_000):
            page.value(tick.format(moment))
        page.value(
            "Promise.all([import('/console/notice.js'), import('/console/api.js')])"
            ".then(([{ failure }, { Unreachable }]) => failure(new Unreachable()))"
        )
        page.shows("The broker does not answer.", ".notice.bad")
        page.value("stream.heard.error()")
        page.until("document.body.classList.contains('lost')")
        page.until("stream !== first")
        page.value("stream.give('missed', { events: null, reason: 'restarted' })")
        for moment in (60_000, 61_000, 62_000):
            page.value(tick.format(moment))
        page.until("document.querySelector('.notice.bad') === null")
        page.until("document.querySelector('.banner').hidden")
        page.until("document.querySelectorAll('.chart')[1].querySelectorAll('.series0 .line').length >= 2")
        assert page.value("document.querySelector('.chart .event text').textContent") == "restarted"


#: Text outside of landmarks, and headings that leave out a level (axe: region, heading-order, page-has-heading-one).
STRUCTURE = """(() => {
    const wrong = [];
    const landmarks = 'header, nav, main, aside, footer, dialog, .skip, [role=alert], [role=status]';
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const item = node.parentElement;
        if (node.data.trim() && item.checkVisibility() && !item.closest(landmarks)) wrong.push(node.data.trim());
    }
    const all = Array.from(document.querySelectorAll('h1, h2, h3, h4, h5, h6'));
    const shown = all.filter((item) => item.checkVisibility());
    const levels = shown.map((item) => Number(item.localName[1]));
    if (levels.filter((level) => level === 1).length !== 1) wrong.push(`h1: ${levels}`);
    levels.forEach((level, i) => {
        if (level > (levels[i - 1] ?? 0) + 1) wrong.push(`h${level} ${shown[i].innerText}`); });
    for (const name of ['main', 'nav[aria-label=Views]', 'aside', 'header'])
        if (document.querySelectorAll(name).length !== 1) wrong.push(name);
    return wrong;
})()"""


def test_everything_is_in_a_landmark_and_headings_leave_out_no_level(
    page: Page, shop_broker: EmbeddedBroker, details: list[str]
) -> None:
    for view in [*VIEWS, *details, "#/nosuch/queues", "#/default/nowhere"]:
        open_view(page, shop_broker, view)
        page.until("Array.from(document.querySelectorAll('main h1')).some((item) => item.checkVisibility())")
        assert page.value(STRUCTURE) == [], view


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_to_sign_in_can_be_read_and_has_a_landmark_and_a_heading(chromium: Chromium, dark: bool) -> None:
    with EmbeddedBroker(http=True, users={"anna": "rosebud"}) as broker, chromium.page(dark=dark) as page:
        page.open(f"{broker.http_url}/")
        page.until("location.pathname === '/sign-in' && document.querySelector('#user') !== null")
        for wrong in (False, True):
            if wrong:
                page.fill("#user", "anna")
                page.fill("#password", "wrong")
                page.press("Enter")
                page.shows("User name or password is wrong.", "main")
            assert page.value(CONTRAST) == []
            assert page.value("document.querySelectorAll('main h1').length") == 1
            assert set(page.value(STRUCTURE)) <= {"nav[aria-label=Views]", "aside", "header"}  # there is no menu


BADGES = """(() => {
    const kinds = Array.from(document.styleSheets).flatMap((sheet) => Array.from(sheet.cssRules))
        .flatMap((rule) => (rule.selectorText ?? '').split(/,\\s*/))
        .filter((text) => /^\\.(badge|truth|notice)(\\.\\w+)*$/.test(text));
    const place = document.createElement('div');
    place.className = 'samples';
    for (const kind of new Set(kinds)) {
        const item = document.createElement('span');
        item.className = kind.replaceAll('.', ' ').trim();
        item.textContent = kind;
        place.append(item);
    }
    document.querySelector('main').append(place);
    return place.childElementCount;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_kind_of_badge_can_be_read(chromium: Chromium, shop_broker: EmbeddedBroker, dark: bool) -> None:
    with chromium.page(dark=dark) as page:
        open_view(page, shop_broker, "#/default/workbench")
        assert page.value(BADGES) >= 8
        assert page.value(CONTRAST) == []


def test_the_browser_takes_every_rule_of_the_style_sheet(page: Page, shop_broker: EmbeddedBroker) -> None:
    """It leaves out a rule with a selector that it does not know: those of another browser have rules of their own."""
    open_view(page, shop_broker, "#/default/overview")
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / "console.css").read_text(), flags=re.DOTALL)
    (others,) = re.findall(r"([^{}]*-moz-[^{}]*){", text)
    assert others.strip() == "progress::-moz-progress-bar"
    taken = page.value("""(() => {
        const count = (rules) => Array.from(rules).reduce((sum, rule) => sum + 1 + count(rule.cssRules ?? []), 0);
        return Array.from(document.styleSheets).reduce((sum, sheet) => sum + count(sheet.cssRules), 0); })()""")
    assert taken == text.count("{") - 1


def test_no_text_is_cut_off_at_ordinary_widths(page: Page, shop_broker: EmbeddedBroker) -> None:
    wide = """Array.from(document.querySelectorAll('.table')).filter((item) => item.scrollWidth > item.clientWidth)
        .map((item) => item.getAttribute('aria-label'))"""
    for view in VIEWS:
        open_view(page, shop_broker, view)
        assert page.value(wide) == [], view
    open_view(page, shop_broker, "#/default/taps")
    page.resize(1024)
    try:
        page.until("document.querySelector('td.actions button') !== null")
        right = "document.querySelector('td.actions button').getBoundingClientRect().right"
        assert page.value(f"{right} <= innerWidth") is True
    finally:
        page.resize(1280)


def test_no_data_is_stored_in_the_browser(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, f"{ORDERS}/messages")
    assert page.value("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
