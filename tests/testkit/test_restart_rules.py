"""What a restart in a test keeps of rules that were changed at run time."""

from __future__ import annotations

from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.server.server import Server
from sievemq_testing import BrokerFactory


def test_a_broker_in_memory_begins_with_its_settings_again(sievemq_broker_factory: BrokerFactory) -> None:
    def change(server: Server) -> None:
        server.live.rules.put("queue:orders", DestinationPolicy(max_attempts=9), None, 1)
        server.use_rules()

    def attempts() -> int:
        broker.call(lambda b: b.scheduler.finish(0))  # what exists gets the rules in a task
        return broker.call(lambda b: b.namespace("default").create("queue:orders").policy.max_attempts)

    broker = sievemq_broker_factory(settings={"destinations": {"orders": {"max_attempts": 2}}})
    broker.on_server(change)
    assert attempts() == 9
    broker.restart()
    assert attempts() == 2
