import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Orders of more than 100 are processed; those of more than 200 are refused and become dead letters. */
class OrdersTest {
    private static final int SOON = 10_000;

    private JMSContext context;
    private Queue orders;

    /** Each test has a namespace of its own, in which no other test's messages are. The broker checks selectors. */
    @BeforeEach
    void connect() {
        String broker = System.getProperty("broker.url", "amqp://127.0.0.1:7672");
        String options = "?jms.validateSelector=false&amqp.vhost=%2Fjunit-" + UUID.randomUUID();
        context = new JmsConnectionFactory(broker + options).createContext(JMSContext.CLIENT_ACKNOWLEDGE);
        orders = context.createQueue("orders");
        for (int amount : new int[] {50, 120, 300}) {
            context.createProducer().setProperty("amount", amount).send(orders, "order over " + amount);
        }
    }

    @AfterEach
    void close() {
        context.close();
    }

    @Test
    void aSelectorDecides() {
        JMSConsumer consumer = context.createConsumer(orders, "amount > 100");
        assertEquals("order over 120", consumer.receiveBody(String.class, SOON));
        assertEquals("order over 300", consumer.receiveBody(String.class, SOON));
        assertNull(consumer.receiveNoWait());
    }

    @Test
    void whatIsRefusedIsADeadLetter() throws JMSException {
        Message refused = context.createConsumer(orders, "amount > 200").receive(SOON);
        refused.setIntProperty("JMS_AMQP_ACK_TYPE", 2); // rejected
        refused.acknowledge();
        Message dead = context.createConsumer(context.createQueue("DLQ.orders")).receive(SOON);
        assertEquals("order over 300", dead.getBody(String.class));
        assertEquals("queue:orders", dead.getStringProperty("JMS_SieveMQ_DeadLetterOrigin"));
    }

    @Test
    void nothingIsSentBeforeTheCommit() {
        Queue invoices = context.createQueue("invoices");
        JMSConsumer consumer = context.createConsumer(invoices);
        try (JMSContext transacted = context.createContext(JMSContext.SESSION_TRANSACTED)) {
            transacted.createProducer().send(invoices, "invoice");
            assertNull(consumer.receiveNoWait());
            transacted.commit();
        }
        assertEquals("invoice", consumer.receiveBody(String.class, SOON));
    }

    @Test
    void aWrongSelectorIsRefusedWithThePlace() {
        Exception error = assertThrows(
            JMSRuntimeException.class, () -> context.createConsumer(orders, "amount > > 100"));
        assertTrue(error.getMessage().contains("^"), error.getMessage());
    }
}
