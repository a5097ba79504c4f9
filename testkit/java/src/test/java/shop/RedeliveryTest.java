package shop;

import static java.time.Duration.ZERO;
import static java.time.Duration.ofMinutes;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.platform.testkit.engine.EngineTestKit;
import sievemq.testing.SieveMQ;
import sievemq.testing.Space;

@ExtendWith(SieveMQ.class)
class RedeliveryTest {
  /** The application: its orders fail, and are taken again in the next transaction. */
  static void takeOrders(JMSContext context, List<Integer> attempts) {
    context.createConsumer(context.createQueue("orders")).setMessageListener(order -> {
      attempts.add(attemptOf(order));
      context.rollback();
    });
  }

  private static int attemptOf(Message order) {
    try {
      return order.getIntProperty("JMSXDeliveryCount");
    } catch (JMSException error) {
      throw new IllegalStateException(error);
    }
  }

  static void send(Space space, String body, int amount) {
    try (JMSContext context = new JmsConnectionFactory(space.amqpUrl()).createContext()) {
      context.createProducer().setProperty("amount", amount).send(context.createQueue("orders"), body);
    }
  }

  @Test
  void anOrderThatFailsIsRedeliveredAfterAMinute(Space space) {
    space.policy("orders", Map.of("max_attempts", 2, "redelivery_delay", 60_000));
    space.freeze();
    List<Integer> attempts = new CopyOnWriteArrayList<>();
    var factory = new JmsConnectionFactory(space.amqpUrl());
    try (JMSContext context = factory.createContext(JMSContext.SESSION_TRANSACTED)) {
      takeOrders(context, attempts);
      send(space, "a chair", 90);
      space.expect("scheduled", ofSeconds(10), Map.of("destination", "orders", "selector", "amount = 90", "count", 1));
      space.expect("dead_letters", ZERO, Map.of("destination", "orders", "count", 0));
      space.advance(ofMinutes(1));
      var letters = space.expect("dead_letters", ofSeconds(10), Map.of("destination", "orders", "reason", "attempts"));
      assertEquals("a chair", letters.get(0).text());
      assertEquals(List.of(1, 2), attempts);
    }
  }

  @Test
  void aSendIsRefused(Space space) {
    space.fault(Map.of("fault", "refuse", "on", "send", "text", "no room for chairs"));
    var refused = assertThrows(JMSRuntimeException.class, () -> send(space, "a chair", 90));
    assertTrue(refused.getMessage().contains("no room for chairs"), refused::getMessage);
    send(space, "a chair", 90);
  }

  @Test
  void aFailingTestSaysWhyAMessageWasNotDelivered() {
    var events = EngineTestKit.engine("junit-jupiter").selectors(selectClass(FailsOnPurpose.class)).execute().testEvents();
    var failed = events.failed().list().get(0).getRequiredPayload(org.junit.platform.engine.TestExecutionResult.class);
    var explanation = failed.getThrowable().orElseThrow().getSuppressed()[0].getMessage();
    assertTrue(explanation.contains("amount > 100 is FALSE (amount is 90"), explanation);
  }
}
