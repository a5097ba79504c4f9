import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSContext;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Jakarta Messaging by Qpid JMS, against the broker whose URL is AMQP_URL: a line of TAP for each step. */
public class QpidJms {
    static final JmsConnectionFactory FACTORY = new JmsConnectionFactory(System.getenv("AMQP_URL"));
    static final int SOON = 20_000;
    static final int MOMENT = 200;

    interface Step {
        void run(Session session) throws Exception;
    }

    static void step(String name, int mode, Step step) {
        try (Connection connection = FACTORY.createConnection()) {
            connection.start();
            step.run(connection.createSession(mode));
            System.out.println("ok - " + name);
        } catch (Throwable error) {
            System.out.println("not ok - " + name + " # " + error);
        }
    }

    static void same(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    static void refused(Class<? extends Exception> expected, Step step, Session session) {
        try {
            step.run(session);
        } catch (Exception error) {
            same(expected, error.getClass());
            return;
        }
        throw new AssertionError("no " + expected);
    }

    static String text(MessageConsumer consumer) throws Exception {
        TextMessage message = (TextMessage) consumer.receive(SOON);
        return message == null ? null : message.getText();
    }

    public static void main(String[] arguments) {
        step("a message has its headers and properties", Session.AUTO_ACKNOWLEDGE, QpidJms::headers);
        step("bodies of all kinds", Session.AUTO_ACKNOWLEDGE, QpidJms::bodies);
        step("a selector decides, and a wrong one is refused", Session.AUTO_ACKNOWLEDGE, QpidJms::selectors);
        step("acknowledge and recover", Session.CLIENT_ACKNOWLEDGE, QpidJms::recover);
        step("commit and roll back", Session.SESSION_TRANSACTED, QpidJms::transactions);
        step("a topic, without what the connection sends itself", Session.AUTO_ACKNOWLEDGE, QpidJms::topic);
        step("a shared subscription", Session.AUTO_ACKNOWLEDGE, QpidJms::shared);
        step("a durable subscription", Session.AUTO_ACKNOWLEDGE, QpidJms::durable);
        step("a browser", Session.AUTO_ACKNOWLEDGE, QpidJms::browser);
        step("request and reply by a temporary queue", Session.AUTO_ACKNOWLEDGE, QpidJms::requestReply);
        step("delay, priority, time to live", Session.AUTO_ACKNOWLEDGE, QpidJms::times);
        step("a listener", Session.AUTO_ACKNOWLEDGE, QpidJms::listener);
        step("the simplified API", Session.AUTO_ACKNOWLEDGE, QpidJms::context);
        System.exit(0);
    }

    static void headers(Session session) throws Exception {
        Queue queue = session.createQueue("headers");
        Topic answers = session.createTopic("answers");
        TextMessage message = session.createTextMessage("hello");
        message.setIntProperty("n", 5);
        message.setJMSType("order");
        message.setJMSCorrelationID("c");
        message.setJMSReplyTo(answers);
        session.createProducer(queue).send(message);
        TextMessage found = (TextMessage) session.createConsumer(queue).receive(SOON);
        same("hello", found.getText());
        same(5, found.getIntProperty("n"));
        same("order", found.getJMSType());
        same("c", found.getJMSCorrelationID());
        same(answers, found.getJMSReplyTo());
        same(queue, found.getJMSDestination());
        same(message.getJMSMessageID(), found.getJMSMessageID());
        same(message.getJMSTimestamp(), found.getJMSTimestamp());
        same(DeliveryMode.PERSISTENT, found.getJMSDeliveryMode());
        same(false, found.getJMSRedelivered());
        same(1, found.getIntProperty("JMSXDeliveryCount"));
    }

    static void bodies(Session session) throws Exception {
        Queue queue = session.createQueue("bodies");
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        MapMessage map = session.createMapMessage();
        map.setInt("a", 1);
        map.setChar("b", 'x');
        map.setBytes("c", new byte[] {1, 2});
        producer.send(map);
        MapMessage foundMap = (MapMessage) consumer.receive(SOON);
        same(1, foundMap.getInt("a"));
        same('x', foundMap.getChar("b"));
        same(2, foundMap.getBytes("c").length);
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(4);
        stream.writeString("z");
        producer.send(stream);
        StreamMessage foundStream = (StreamMessage) consumer.receive(SOON);
        same(4, foundStream.readInt());
        same("z", foundStream.readString());
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeUTF("bytes");
        producer.send(bytes);
        same("bytes", ((BytesMessage) consumer.receive(SOON)).readUTF());
        producer.send(session.createObjectMessage(new ArrayList<>(List.of("object"))));
        same(List.of("object"), ((ObjectMessage) consumer.receive(SOON)).getObject());
        producer.send(session.createMessage());
        same(true, consumer.receive(SOON) != null);
        String large = "x".repeat(3_000_000);
        producer.send(session.createTextMessage(large));
        same(large, text(consumer));
    }

    static void selectors(Session session) throws Exception {
        Queue queue = session.createQueue("selectors");
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 10; n++) {
            TextMessage message = session.createTextMessage("" + n);
            message.setIntProperty("n", n);
            producer.send(message);
        }
        MessageConsumer consumer = session.createConsumer(queue, "n BETWEEN 3 AND 4");
        same("3", text(consumer));
        same("4", text(consumer));
        same(null, consumer.receive(MOMENT));
        refused(InvalidSelectorException.class, s -> s.createConsumer(queue, "n = = 1"), session);
    }

    static void recover(Session session) throws Exception {
        Queue queue = session.createQueue("recover");
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("a"));
        producer.send(session.createTextMessage("b"));
        MessageConsumer consumer = session.createConsumer(queue);
        same("a", text(consumer));
        session.recover();
        Message again = consumer.receive(SOON);
        same(true, again.getJMSRedelivered());
        same(2, again.getIntProperty("JMSXDeliveryCount"));
        same("b", text(consumer));
        again.acknowledge();
        session.recover();
        same(null, consumer.receive(MOMENT));
    }

    static void transactions(Session session) throws Exception {
        Queue queue = session.createQueue("transactions");
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        producer.send(session.createTextMessage("dropped"));
        session.rollback();
        producer.send(session.createTextMessage("sent"));
        same(null, consumer.receive(MOMENT));
        session.commit();
        same("sent", text(consumer));
        session.rollback();
        Message again = consumer.receive(SOON);
        same(true, again.getJMSRedelivered());
        session.commit();
        same(null, consumer.receive(MOMENT));
    }

    static void topic(Session session) throws Exception {
        Topic topic = session.createTopic("topic");
        MessageConsumer all = session.createConsumer(topic);
        MessageConsumer others = session.createConsumer(topic, null, true);
        session.createProducer(topic).send(session.createTextMessage("x"));
        same("x", text(all));
        same(null, others.receive(MOMENT));
    }

    static void shared(Session session) throws Exception {
        Topic topic = session.createTopic("shared");
        MessageConsumer one = session.createSharedConsumer(topic, "name");
        MessageConsumer other = session.createSharedConsumer(topic, "name");
        session.createProducer(topic).send(session.createTextMessage("x"));
        same(true, (one.receive(MOMENT) == null) != (other.receive(MOMENT) == null));
    }

    static void durable(Session unused) throws Exception {
        try (Connection connection = FACTORY.createConnection()) {
            connection.setClientID("client");
            connection.start();
            Session session = connection.createSession();
            Topic topic = session.createTopic("durable");
            session.createDurableConsumer(topic, "name").close();
            session.createProducer(topic).send(session.createTextMessage("kept"));
            MessageConsumer consumer = session.createDurableConsumer(topic, "name");
            same("kept", text(consumer));
            consumer.close();
            session.unsubscribe("name");
            refused(InvalidDestinationException.class, s -> s.unsubscribe("name"), session);
            refused(InvalidClientIDException.class, s -> FACTORY.createConnection().setClientID("client"), session);
        }
    }

    static void browser(Session session) throws Exception {
        Queue queue = session.createQueue("browser");
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 250; n++) {
            TextMessage message = session.createTextMessage("" + n);
            message.setIntProperty("n", n);
            producer.send(message);
        }
        try (QueueBrowser browser = session.createBrowser(queue, "n >= 100")) {
            same(150, Collections.list(browser.getEnumeration()).size());
        }
        same("0", text(session.createConsumer(queue)));
    }

    static void requestReply(Session session) throws Exception {
        Queue queue = session.createQueue("requests");
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer client = session.createConsumer(replies);
        MessageConsumer server = session.createConsumer(queue);
        TextMessage request = session.createTextMessage("ping");
        request.setJMSReplyTo(replies);
        session.createProducer(queue).send(request);
        session.createProducer(null).send(server.receive(SOON).getJMSReplyTo(), session.createTextMessage("pong"));
        same("pong", text(client));
    }

    static void times(Session session) throws Exception {
        Queue queue = session.createQueue("times");
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        producer.setDeliveryDelay(500);
        producer.send(session.createTextMessage("late"));
        same(null, consumer.receive(MOMENT));
        same("late", text(consumer));
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("x"), DeliveryMode.NON_PERSISTENT, 7, 100_000);
        Message message = consumer.receive(SOON);
        same(7, message.getJMSPriority());
        same(DeliveryMode.NON_PERSISTENT, message.getJMSDeliveryMode());
        same(true, message.getJMSExpiration() > System.currentTimeMillis());
    }

    static void listener(Session session) throws Exception {
        Queue queue = session.createQueue("listener");
        java.util.concurrent.LinkedBlockingQueue<Message> found = new java.util.concurrent.LinkedBlockingQueue<>();
        session.createConsumer(queue).setMessageListener(found::add);
        try (JMSContext context = FACTORY.createContext()) {
            for (int n = 0; n < 100; n++) {
                context.createProducer().send(queue, "" + n);
            }
        }
        for (int n = 0; n < 100; n++) {
            Message message = found.poll(SOON, java.util.concurrent.TimeUnit.MILLISECONDS);
            same("" + n, message.getBody(String.class));
        }
    }

    static void context(Session unused) throws Exception {
        try (JMSContext context = FACTORY.createContext()) {
            Queue queue = context.createQueue("context");
            context.createProducer().setProperty("n", 1).send(queue, "body");
            same("body", context.createConsumer(queue).receiveBody(String.class, SOON));
        }
    }
}
