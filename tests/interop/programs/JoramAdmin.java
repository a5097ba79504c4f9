import java.util.HashMap;
import java.util.Map;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NameNotFoundException;
import javax.naming.NamingException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.objectweb.jtests.jms.admin.Admin;

/** What the Joram tests ask of a provider: factories and destinations by name. Each destination is a new one. */
public class JoramAdmin implements Admin {
    private static final Map<String, Object> NAMES = new HashMap<>();
    private static final String URL = System.getProperty("broker.url") + "?jms.forceSyncSend=true";
    private static int made;

    public String getName() {
        return "SieveMQ";
    }

    public Context createContext() throws NamingException {
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

    public void createConnectionFactory(String name) {
        NAMES.put(name, new JmsConnectionFactory(URL));
    }

    public void createQueueConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    public void createTopicConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    public void createQueue(String name) {
        NAMES.put(name, new JmsQueue(name + "-" + ++made));
    }

    public void createTopic(String name) {
        NAMES.put(name, new JmsTopic(name + "-" + ++made));
    }

    public void deleteQueue(String name) {
        NAMES.remove(name);
    }

    public void deleteTopic(String name) {
        NAMES.remove(name);
    }

    public void deleteConnectionFactory(String name) {
        NAMES.remove(name);
    }

    public void deleteQueueConnectionFactory(String name) {
        NAMES.remove(name);
    }

    public void deleteTopicConnectionFactory(String name) {
        NAMES.remove(name);
    }

    public void startServer() {}

    public void stopServer() {}

    public void start() {}

    public void stop() {}
}
