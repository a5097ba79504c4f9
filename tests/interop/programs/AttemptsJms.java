import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A worker of Qpid JMS: see tests/interop/attempts.py. */
public class AttemptsJms {
    private static final int SOON = 20_000;

    public static void main(String[] arguments) throws Exception {
        String end = System.getenv("END");
        String options = "jms.prefetchPolicy.all=" + System.getenv("PREFETCH");
        String url = System.getenv("BROKER_URL") + "?" + options;
        if (end.equals("return")) {
            url = "failover:(" + System.getenv("BROKER_URL") + ")?" + options;
        }
        Connection connection = new JmsConnectionFactory(url).createConnection();
        connection.start();
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue("jobs"));
        for (int count = Integer.parseInt(System.getenv("HANDLE")); count > 0; count--) {
            Message message = consumer.receive(SOON);
            message.acknowledge();
            session.createProducer(session.createQueue("done")).close(); // the disposition was written before
            System.out.println("handled " + message.getBody(String.class));
        }
        work(consumer);
        switch (end) {
            case "consumer" -> {
                consumer.close();
                session.close();
                connection.close();
            }
            case "session" -> {
                session.close();
                connection.close();
            }
            case "connection" -> connection.close();
            case "return" -> work(consumer); // it connects again by itself
            default -> { }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void work(MessageConsumer consumer) throws Exception {
        System.out.println("working " + consumer.receive(SOON).getBody(String.class));
        System.in.read();
    }
}
