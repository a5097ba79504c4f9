import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A client of Qpid JMS whose broker changes: see tests/interop/takeovers.py. */
public class TakeoverJms {
    private static final CountDownLatch enough = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        String hosts = Arrays.stream(System.getenv("BROKERS").split(","))
            .map(host -> "amqp://" + host + "?amqp.idleTimeout=2000").collect(Collectors.joining(","));
        String namespace = System.getenv("NAMESPACE");
        String login = System.getenv("LOGIN");
        JmsConnectionFactory factory = new JmsConnectionFactory("failover:(" + hosts + ")"
            + "?failover.reconnectDelay=50&failover.maxReconnectDelay=500&jms.connectTimeout=2000"
            + (namespace.isEmpty() ? "" : "&failover.nested.amqp.vhost=%2F" + namespace));
        Connection connection = login.isEmpty() ? factory.createConnection() : factory.createConnection(login, "secret");
        connection.start();
        Session receiving = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        Queue queue = receiving.createQueue("orders");
        receiving.createConsumer(queue).setMessageListener(TakeoverJms::got);
        Session sending = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = sending.createProducer(queue);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        Thread input = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            enough.countDown();
        });
        input.setDaemon(true);
        input.start();
        int number = 0;
        for (; !enough.await(2, TimeUnit.MILLISECONDS); number++) {
            producer.send(sending.createTextMessage(Integer.toString(number)));
            say("sent " + number);
        }
        say("all " + number);
        Thread.currentThread().join();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    private static void got(Message message) {
        try {
            say((message.getJMSRedelivered() ? "again " : "got ") + message.getBody(String.class));
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
}
