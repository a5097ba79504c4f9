import java.util.HashMap;
import java.util.Hashtable;
import java.util.List;
import java.util.Map;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NameNotFoundException;
import javax.naming.NamingException;
import javax.naming.spi.InitialContextFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;

/** The objects that the Jakarta Messaging TCK looks up, of Qpid JMS. */
public class TckNames implements InitialContextFactory {
    private static final Map<String, Object> NAMES = new HashMap<>();

    static {
        // A consumer on a connection that is not started must not fetch ahead: the tests have such consumers beside others.
        String url = System.getProperty("broker.url") + "?jms.prefetchPolicy.all=0";
        for (String name : List.of("MyConnectionFactory", "MyQueueConnectionFactory", "MyTopicConnectionFactory")) {
            NAMES.put(name, new JmsConnectionFactory(System.getProperty("user"), System.getProperty("password"), url));
        }
        JmsConnectionFactory durable = new JmsConnectionFactory(url);
        durable.setClientID("cts");
        NAMES.put("DURABLE_SUB_CONNECTION_FACTORY", durable);
        for (String name : List.of("MY_QUEUE", "MY_QUEUE2", "testQ0", "testQ1", "testQ2", "testQueue2", "Q2")) {
            NAMES.put(name, new JmsQueue(name));
        }
        for (String name : List.of("MY_TOPIC", "MY_TOPIC2", "testT0", "testT1", "testT2")) {
            NAMES.put(name, new JmsTopic(name));
        }
    }

    public Context getInitialContext(Hashtable<?, ?> environment) throws NamingException {
        return new InitialContext(true) {
            @Override
            public Object lookup(String name) throws NamingException {
                Object found = NAMES.get(name);
                if (found == null) {
                    throw new NameNotFoundException(name);
                }
                return found;
            }

            @Override
            public void close() {}
        };
    }
}
