package shop;

import static java.time.Duration.ZERO;

import jakarta.jms.JMSContext;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import sievemq.testing.SieveMQ;
import sievemq.testing.Space;

/** Run by RedeliveryTest alone. */
@ExtendWith(SieveMQ.class)
class FailsOnPurpose {
  @Test
  void nobodyWantsTheOrder(Space space) {
    try (JMSContext context = new JmsConnectionFactory(space.amqpUrl()).createContext()) {
      context.createConsumer(context.createQueue("orders"), "amount > 100").receiveNoWait();
      RedeliveryTest.send(space, "a chair", 90);
      space.expect("consumed", ZERO, Map.of("destination", "orders"));
    }
  }
}
