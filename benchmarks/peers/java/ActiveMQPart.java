import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import java.util.Map;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.AsyncCallback;

/** ActiveMQ Classic's own client. */
public final class ActiveMQPart {
    private ActiveMQPart() { }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> job = Part.job(arguments);
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(job.get("url"));
        boolean topic = job.get("kind").equals("topic");
        factory.setUseAsyncSend(true);
        factory.setCopyMessageOnSend(false);
        factory.setOptimizeAcknowledge(topic);
        factory.setWatchTopicAdvisories(job.get("workload").equals("W2"));
        factory.getPrefetchPolicy().setQueuePrefetch(job.get("workload").equals("W6") ? 1 : 1000);
        Part.play(new Part.Client() {
            @Override
            public Connection connect() throws JMSException {
                return factory.createConnection();
            }

            @Override
            public void confirmed(MessageProducer producer, Message message, Runnable done) throws JMSException {
                ((ActiveMQMessageProducer) producer).send(message, new AsyncCallback() {
                    @Override
                    public void onSuccess() {
                        done.run();
                    }

                    @Override
                    public void onException(JMSException error) {
                        error.printStackTrace();
                    }
                });
            }
        }, job);
    }
}
